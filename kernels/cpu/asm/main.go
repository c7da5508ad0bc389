// Command asm generates the assembly of package cpu with avo; ../routines.go
// holds the lines that run it.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	part := flag.String("part", "", "what to generate: tiles, table, vectors or spans")
	flag.Parse()
	ConstraintExpr("amd64")
	switch *part {
	case "tiles":
		tiles()
	case "table":
		table()
		return
	case "vectors":
		vectors()
	case "spans":
		spans()
	default:
		fmt.Fprintf(os.Stderr, "asm: unknown part %q\n", *part)
		os.Exit(2)
	}
	Generate()
}
