"""placeholder"""
def shift_atom(*a): raise NotImplementedError
