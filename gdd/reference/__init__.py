"""The mathematics, complete and readable: the reference for every compiled part of the sampler.

Read `gdd.model` first, which defines the joint density, then this package, in this order:

* `gdd.reference.conditionals`: every conditional of one layer as the equation reads; each returns a distribution.
* `gdd.reference.layer_sweep`: a Gibbs sweep over one layer, for pretraining.
* `gdd.reference.joint_conditionals` and `gdd.reference.joint_sweep`: the same for all layers together, for refinement.
* `gdd.reference.deconvolution`: the coefficients of new images under known atoms.
* `gdd.reference.screening`, `gdd.reference.solver`, `gdd.reference.random`: mean images of atoms, for proposals;
  conjugate gradients; and the keys of all random numbers.

In docstrings *P2* and the like are numbers of the paper's misprints and gaps, which the book's page *Errata* explains;
a *ratio test* compares differences of a conditional's log density with those of the joint log density.

The code is plain numpy, computes everything afresh and is slow. The tests compare every conditional with the log
density by exact ratios, and every compiled sweep with its counterpart here, from the same random numbers.
"""
