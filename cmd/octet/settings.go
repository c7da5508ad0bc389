package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
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
			return nil, usageError{fmt.Errorf("cannot read the configuration file %s: %s", path, fileProblem(err))}
		}
	}
	if err := fromEnv.Load(env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: settingName}), nil); err != nil {
		return nil, err
	}
	if err := refuseUnknown(cmd.Root(), fromFile, fromEnv, path); err != nil {
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
		return usageError{fmt.Errorf("%s from %s: %w", f.Name, origin, valueError(f, text, err))}
	}
	return nil
}

// valueError says in words why a flag does not take a value.
func valueError(f *pflag.Flag, text string, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%q is out of range", text)
	}
	var want string
	switch f.Value.Type() {
	case "int", "int32", "int64":
		want = "a whole number"
	case "uint", "uint32", "uint64":
		want = "a whole number of at least 0"
	case "float32", "float64":
		want = "a number"
	case "bool":
		want = "true or false"
	case "duration":
		want = "a duration such as 300ms or 2s"
	case "size":
		return err
	default:
		return fmt.Errorf("%q is not valid: %w", text, err)
	}
	return fmt.Errorf("%q is not %s", text, want)
}

// fileProblem is the first thing that is wrong with a YAML file, on one line.
func fileProblem(err error) string {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if line, _, found := strings.Cut(text, ": cannot unmarshal "); found {
		return line + ": want settings as NAME: VALUE"
	}
	return text
}

// refuseUnknown finds a misspelt key: one that is no setting of any command; and
// OCTET_JSON, which would be without effect.
func refuseUnknown(root *cobra.Command, fromFile, fromEnv *koanf.Koanf, path string) error {
	known := map[string]bool{}
	eachCommand(root, func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = !slices.Contains(notSettings, f.Name) })
	})
	for _, key := range fromFile.Keys() {
		if !known[key] {
			return usageError{fmt.Errorf("%s: %q is not a setting; octet config print lists them", path, key)}
		}
	}
	// Other unknown variables may be somebody else's: a container of a service that is
	// called octet gets OCTET_PORT and more.
	if fromEnv.Exists("json") {
		return usageError{fmt.Errorf("OCTET_JSON in the environment is not a setting: give --json to the command")}
	}
	return nil
}

func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}
