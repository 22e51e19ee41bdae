"""The page about runs: live in a browser, or frozen in a file. Everything on it is read from run folders."""
