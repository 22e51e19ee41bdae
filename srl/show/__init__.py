"""Moving pictures of an env for people: a page in a browser, a window, a film."""
