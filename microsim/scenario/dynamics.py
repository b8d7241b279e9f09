from microsim.robots.rover import Dynamics

__all__ = ["Dynamics"]
