"""How kernels are compiled.

Numba counts who holds an array, with two locked instructions for every slice and many a call, in case it has to be
freed. A kernel that only works on arrays it was given frees none; counting took a quarter of the time of an image pass,
and two thirds of a random number. So only functions that allocate keep it. A kernel that allocates, or returns a part
of an array, by mistake, does not compile without it.

*Checked:* tests/test_compiling.py.
"""

from __future__ import annotations

#: options of a kernel that is called by kernels: it neither allocates nor returns an array
INNER = {"cache": True, "_nrt": False}
#: lets sums of products use vector registers; keeps NaN and infinities honest
FAST = {"reassoc", "contract", "nsz", "arcp"}
