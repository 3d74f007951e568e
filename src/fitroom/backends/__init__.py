"""One package a framework, all behind one contract."""
