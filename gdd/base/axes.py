"""Names of axes, defined once.

Every array of the package has its axes named here. A trailing comment such as ``# (image, atom, row, col)``
anywhere in the code uses these words, and so do the error messages.
"""

import re

IMAGE = "image"
PLANE = "plane"
ROW = "row"
COL = "col"
ATOM = "atom"
ATOM_ROW = "atom_row"
ATOM_COL = "atom_col"
BLOCK_ROW = "block_row"
BLOCK_COL = "block_col"
FEATURE = "feature"
LABEL = "label"
CHAIN = "chain"
DRAW = "draw"

IMAGES = (IMAGE, PLANE, ROW, COL)
DICTIONARY = (ATOM, PLANE, ATOM_ROW, ATOM_COL)
MAPS = (IMAGE, ATOM, ROW, COL)
BLOCKS = (IMAGE, ATOM, BLOCK_ROW, BLOCK_COL)

#: names of arrays and axes in our results and files, which no coordinate of a user's images may have
OURS = re.compile(
    r"plane|chain|feature|strength|(pooled_)?layer|atom(_\d+)?|(block_|atom_)?(row|col)(_\d+)?|draw(_(\d+|all))?"
    r"|(dictionary|position|weight|map|gamma_[dew])_\d+|gamma_e|(projected|trace|last)_.*"
    r"|mean|inclusion|magnitude|ml_sample|log_likelihood|trace|one_step"
)
