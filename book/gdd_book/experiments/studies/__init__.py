"""Questions of our own, each shown on a page; the paper's figures and tables are in the folder above."""
