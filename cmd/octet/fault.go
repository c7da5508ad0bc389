package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

func newFault() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fault",
		Short: "Break things on purpose and see what holds",
		Long: "Break things on purpose and see what holds.\n\nA script has one fault a line, # starts a comment:\n\n" +
			"  [at round N | at op N | at hit N | after DURATION] VERB [at POINT] [rank=N|any|supervisor] [for=DURATION] [every=N]\n" +
			"  expect continue\n  expect error GroupBroken\n\noctet fault list names the verbs and points.",
		Example: "  octet fault run deploy/faults/kill-rank.fault\n  octet fault list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFaultRun(), newFaultList(), newFaultArm(), newFaultClear())
	return cmd
}

func newFaultList() *cobra.Command {
	var armed bool
	cmd := clientCommand("list", "List verbs and points, or with --armed what is armed in a running server",
		"  octet fault list\n  octet fault list --armed --json", cobra.NoArgs,
		func(cmd *cobra.Command, client *coordinator.Client, _ []string) error {
			if !armed {
				return listVerbs(cmd)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			list, err := client.ListFaults(ctx, &octetv1.ListFaultsRequest{})
			if err != nil {
				return err
			}
			return printFaults(cmd, list.GetFaults())
		})
	cmd.Flags().BoolVar(&armed, "armed", false, "ask the server what is armed")
	return cmd
}

func listVerbs(cmd *cobra.Command) error {
	if wantJSON(cmd) {
		verbs := map[faults.Verb][]faults.Point{}
		for _, v := range faults.Verbs() {
			verbs[v] = append([]faults.Point{}, faults.PointsOf(v)...)
		}
		return printJSON(cmd, map[string]any{"verbs": verbs, "points": faults.Points()})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VERB\tPOINTS (THE FIRST IS THE DEFAULT)")
	for _, v := range faults.Verbs() {
		var names []string
		for _, p := range faults.PointsOf(v) {
			names = append(names, string(p))
		}
		switch len(names) {
		case 0:
			names = []string{"acts on a whole process"}
		case len(faults.Points()):
			names = []string{names[0] + " and all others"}
		}
		fmt.Fprintf(table, "%s\t%s\n", v, strings.Join(names, ", "))
	}
	fmt.Fprintln(table, "\nPOINT")
	for _, p := range faults.Points() {
		fmt.Fprintln(table, p)
	}
	return table.Flush()
}

func newFaultArm() *cobra.Command {
	return clientCommand("arm FILE", "Arm a script in a running server (octet serve --allow-faults)",
		"  echo 'kill rank=3' | octet fault arm -", cobra.ExactArgs(1),
		func(cmd *cobra.Command, client *coordinator.Client, args []string) error {
			text, err := readScript(cmd, args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			armed, err := client.ArmFault(ctx, &octetv1.ArmFaultRequest{Script: text})
			if err != nil {
				return err
			}
			return printFaults(cmd, armed.GetFaults())
		})
}

func newFaultClear() *cobra.Command {
	return clientCommand("clear [ID...]", "Disarm faults of a running server, all if none is named",
		"  octet fault clear", cobra.ArbitraryArgs,
		func(cmd *cobra.Command, client *coordinator.Client, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			cleared, err := client.ClearFaults(ctx, &octetv1.ClearFaultsRequest{Ids: args})
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"cleared": cleared.GetCleared()})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d faults cleared\n", cleared.GetCleared())
			return nil
		})
}

func printFaults(cmd *cobra.Command, list []*octetv1.Fault) error {
	if wantJSON(cmd) {
		documents := []map[string]any{}
		for _, f := range list {
			documents = append(documents, map[string]any{"id": f.GetId(), "line": f.GetLine(), "fired": f.GetFired(), "hits": f.GetHits()})
		}
		return printJSON(cmd, map[string]any{"faults": documents})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tSTRUCK\tFAULT")
	for _, f := range list {
		fmt.Fprintf(table, "%s\t%d\t%s\n", f.GetId(), f.GetHits(), f.GetLine())
	}
	return table.Flush()
}

// readScript reads a script from a file, or from standard input for "-".
func readScript(cmd *cobra.Command, path string) (string, error) {
	if path == "-" {
		text, err := io.ReadAll(cmd.InOrStdin())
		return string(text), err
	}
	text, err := readInput(path)
	return string(text), err
}
