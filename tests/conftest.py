"""Tests run with the threads that every command has: one. On small products a second one only waits for the first."""

from srl.core.threads import limit_here

limit_here()
