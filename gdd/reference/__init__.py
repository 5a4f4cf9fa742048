"""The mathematics, whole and readable: what every compiled part of the sampler is held against.

Read `gdd.model` first, the density of everything, then here, in this order:

* `gdd.reference.conditionals`: every conditional of one layer as the equation reads; each returns a distribution.
* `gdd.reference.layer_sweep`: a sweep made of them, pretraining.
* `gdd.reference.joint_conditionals` and `gdd.reference.joint_sweep`: the same of all layers together, refinement.
* `gdd.reference.deconvolution`: the coefficients of new images under known atoms.
* `gdd.reference.screening`, `gdd.reference.solver`, `gdd.reference.random`: mean images of atoms that proposals are
  made from, conjugate gradients, and which random numbers belong to which draw.

All is plain numpy. Everything is computed afresh and nothing is fast. The tests compare every conditional with the log
density by exact ratios, and every compiled sweep with the one here, from the same random numbers.
"""
