"""The parts that training recipes are composed of."""
