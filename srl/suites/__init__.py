"""What every policy and every algorithm must hold, as checks that anybody can run: `srl check policy`, `srl check algorithm`."""
