"""How is the engine built from its lock, and which tree does an arm run on?"""

from reckoning.engine.build import EngineError, build
from reckoning.engine.proof import Proof, read_proof
from reckoning.engine.spec import EngineSpec, load_specs

__all__ = ["EngineError", "EngineSpec", "Proof", "build", "load_specs", "read_proof"]
