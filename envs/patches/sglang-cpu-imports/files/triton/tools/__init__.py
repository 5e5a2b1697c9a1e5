from triton._unavailable import names

__getattr__ = names("triton.tools")
