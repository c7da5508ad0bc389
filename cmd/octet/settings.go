package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A setting is a flag. Its value comes from the command line, else from
// OCTET_NAME in the environment, else from the YAML file, else it is the
// default; origin says which.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

const envPrefix = "OCTET_"

// notSettings are flags that belong to one call and not to a configuration.
var notSettings = []string{"help", "version", "config", "json"}

// loadSettings fills the flags of cmd that the command line left alone.
func loadSettings(cmd *cobra.Command) ([]setting, error) {
	path, err := configPath(cmd)
	if err != nil {
		return nil, err
	}
	fromFile, fromEnv := koanf.New("."), koanf.New(".")
	if path != "" {
		if err := fromFile.Load(configFile(path), yaml.Parser()); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, usageError{fmt.Errorf("the configuration file %s does not exist", path)}
			}
			return nil, usageError{fmt.Errorf("cannot read the configuration file %s: %w", path, err)}
		}
	}
	if err := fromEnv.Load(env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: settingName}), nil); err != nil {
		return nil, err
	}
	if err := refuseUnknown(cmd.Root(), fromFile, path); err != nil {
		return nil, err
	}
	var settings []setting
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if failed != nil || slices.Contains(notSettings, f.Name) {
			return
		}
		origin := "default"
		switch {
		case f.Changed:
			origin = "flag"
		case fromEnv.Exists(f.Name):
			origin = "environment " + envPrefix + envName(f.Name)
			failed = setFlag(f, fromEnv.Get(f.Name), origin)
		case fromFile.Exists(f.Name):
			origin = "file " + path
			failed = setFlag(f, fromFile.Get(f.Name), origin)
		}
		settings = append(settings, setting{f.Name, f.Value.String(), origin})
	})
	return settings, failed
}

// configFile is a path as a koanf.Provider. The one that comes with koanf also
// watches the file.
type configFile string

// ReadBytes reads the file.
func (f configFile) ReadBytes() ([]byte, error) { return os.ReadFile(string(f)) }

// Read is not for files, which need a parser.
func (f configFile) Read() (map[string]any, error) { return nil, errors.ErrUnsupported }

func configPath(cmd *cobra.Command) (string, error) {
	path, err := cmd.Flags().GetString("config")
	if err != nil || path != "" {
		return path, err
	}
	k := koanf.New(".")
	err = k.Load(env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: settingName}), nil)
	return k.String("config"), err
}

func settingName(key, value string) (string, any) {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, envPrefix)), "_", "-"), value
}

func envName(flag string) string {
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func setFlag(f *pflag.Flag, value any, origin string) error {
	text := fmt.Sprint(value)
	if list, ok := value.([]any); ok {
		parts := make([]string, len(list))
		for i, v := range list {
			parts[i] = fmt.Sprint(v)
		}
		text = strings.Join(parts, ",")
	}
	if err := f.Value.Set(text); err != nil {
		return usageError{fmt.Errorf("%s from %s: %q is not valid: %w", f.Name, origin, text, err)}
	}
	return nil
}

// refuseUnknown finds a misspelt key: one that is no flag of any command.
func refuseUnknown(root *cobra.Command, k *koanf.Koanf, path string) error {
	known := map[string]bool{}
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	})
	for _, key := range k.Keys() {
		if !known[key] {
			return usageError{fmt.Errorf("%s: %q is not a setting; octet config print lists them", path, key)}
		}
	}
	return nil
}

func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}
