"""The worlds of one batch in the forms that other libraries take. Each file imports its own library, and no other does.

Libraries that take Gymnasium's vectors need none of them: RLlib makes `microsim.parts.learning:MicroSim/RoverAvoid-v0`
by itself with `gym_env_vectorize_mode="vector_entry_point"`.
"""
