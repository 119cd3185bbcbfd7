"""The commands of `vanilla-transformer`: each is a function; its help is its docstring and its signature."""
