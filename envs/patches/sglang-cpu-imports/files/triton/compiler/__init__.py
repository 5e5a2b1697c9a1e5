from triton.compiler.compiler import ASTSource, CompiledKernel, make_backend

__all__ = ["ASTSource", "CompiledKernel", "make_backend"]
