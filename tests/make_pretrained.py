"""Learn the dictionaries that the package brings, gdd/pretrained/digits.nc, from MNIST; some minutes of a core.

Run ``python tests/make_pretrained.py`` where MNIST is (`gdd data`). The dictionaries are those of the book's experiment
mnist-best, bit for bit: the same digits, chain and seeds, pixels from 0 to 1 as they are.
"""

import time

from gdd import OneStepFeatures
from gdd.one_step import SHIPPED
from gdd.results import read, write
from gdd_book.data import datasets

COUNT = 1000

if __name__ == "__main__":
    digits = datasets.load("mnist", "train", n=COUNT)
    begun = time.process_time()
    asked = {"whitening": False, "rescale": False, "sweeps": (150, 20), "learn_from": COUNT}
    model = OneStepFeatures.digits(**asked).fit(digits[:, 0].drop_vars("label"))
    seconds = time.process_time() - begun
    model.save(path := SHIPPED / "digits.nc")
    learned = f"{COUNT} training digits of MNIST, (28, 28), 0 to 1, white on black; their labels were not used"
    write(read(path).assign_attrs(learned_from=learned, data_sha256=digits.attrs["checksum"]), path)
    shapes = ", ".join(str(one.shape) for one in model.dictionaries_)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB, {shapes}; learned in {seconds:.0f} seconds of processor time")
