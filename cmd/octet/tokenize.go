package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/model/tokenizer"
)

func newTokenize() *cobra.Command {
	var model, file string
	var noSpecial bool
	cmd := &cobra.Command{
		Use:     "tokenize [TEXT]",
		Short:   "Turn text into token ids",
		Example: "  octet tokenize --model llama-3-8b 'func main() {'\n  octet tokenize --model llama-3-8b --file - <main.go --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (file != "") == (len(args) == 1) {
				return usagef("give the text once: as an argument or with --file")
			}
			text := []byte(nil)
			if len(args) == 1 {
				text = []byte(args[0])
			} else {
				var err error
				if text, err = readInput(file); err != nil {
					return err
				}
			}
			t, err := openTokenizer(model)
			if err != nil {
				return err
			}
			ids := t.Encode(string(text), !noSpecial)
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"ids": orEmpty(ids)})
			}
			fmt.Fprintln(cmd.OutOrStdout(), joinIDs(ids))
			return nil
		},
	}
	registerModel(cmd.Flags(), &model)
	cmd.Flags().StringVar(&file, "file", "", "file with the text, - for standard input")
	cmd.Flags().BoolVar(&noSpecial, "no-special", false, "add no special tokens, such as the one that begins a text")
	return cmd
}

func newDetokenize() *cobra.Command {
	var model, list string
	var skipSpecial bool
	cmd := &cobra.Command{
		Use:     "detokenize --ids 1,2,3",
		Short:   "Turn token ids into text",
		Example: "  octet detokenize --model llama-3-8b --ids 791,4062,14198",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if strings.Trim(list, ", \t\n[]") == "" {
				return usagef("there are no token ids: give some with --ids 1,2,3")
			}
			ids, err := parseIDs(list)
			if err != nil {
				return err
			}
			t, err := openTokenizer(model)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if id < 0 || int(id) >= t.VocabSize() {
					return usagef("token %d: the vocabulary has %d tokens", id, t.VocabSize())
				}
			}
			text := t.Decode(ids, skipSpecial)
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"text": text})
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	registerModel(cmd.Flags(), &model)
	cmd.Flags().StringVar(&list, "ids", "", "token ids: 1,2,3")
	cmd.Flags().BoolVar(&skipSpecial, "skip-special", false, "leave special tokens out")
	return cmd
}

func openTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	if dir == "" {
		pair, err := unpackPair()
		if err != nil {
			return nil, err
		}
		dir = pair.Target
	}
	return tokenizer.Load(dir)
}

// orEmpty makes an empty list [] in JSON instead of null.
func orEmpty(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}
