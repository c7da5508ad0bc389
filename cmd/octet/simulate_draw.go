package main

import (
	"os"

	"github.com/octet-run/octet/collectives/boxsim"
)

func drawSimulation(path string, d boxsim.Decode, out simulated) error {
	picture, err := d.Draw(out.Rows, out.Today)
	if err != nil {
		return err
	}
	return os.WriteFile(path, picture, 0o644)
}
