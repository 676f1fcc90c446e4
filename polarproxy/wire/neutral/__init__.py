"""One conversation that every dialect can be read into and written from; what does not fit is a `Loss`, never silence."""
