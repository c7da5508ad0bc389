package tokenizer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// maxRange is the longest range a template may ask for, as in Jinja2's sandbox.
const maxRange = 100_000

// templateRun is one rendering.
type templateRun struct {
	now     time.Time
	refused *RefusedError
}

type callArgs struct {
	positional []jinja.Value
	named      map[string]jinja.Value
}

// at returns argument i, or what was given as name; undefined if neither.
func (a callArgs) at(i int, name string) jinja.Value {
	if i < len(a.positional) {
		return a.positional[i]
	}
	return a.named[name]
}

// functions are the functions and filters that templates expect of transformers, and
// the engine's own where they differ.
func (run *templateRun) functions() map[string]jinja.Value {
	values := map[string]jinja.Value{}
	all := map[string]func(callArgs) (jinja.Value, error){
		printFilter:       printValue,
		methodFunction:    callMethod,
		"range":           rangeOf,
		"raise_exception": run.raise,
		"strftime_now":    run.strftime,
	}
	for name, fn := range ownFilters() {
		all[ownFilter(name)] = fn
	}
	for name, fn := range all {
		values[name] = jinja.NewCallable(name, func(args []jinja.Value, named map[string]jinja.Value) (jinja.Value, error) {
			return fn(callArgs{args, named})
		})
	}
	return values
}

func printValue(a callArgs) (jinja.Value, error) { return jinja.NewString(pythonStr(a.at(0, ""))), nil }

func jsonDumps(a callArgs) (jinja.Value, error) {
	w := &jsonWriter{item: ", ", key: ": "}
	switch indent := a.at(2, "indent"); {
	case indent.IsInt():
		w.indent, w.pretty, w.item = strings.Repeat(" ", int(min(max(indent.AsInt(), 0), 64))), true, ","
	case indent.IsString():
		w.indent, w.pretty, w.item = indent.AsString(), true, ","
	}
	if s := a.at(3, "separators"); s.IsList() && s.AsList().Len() == 2 {
		w.item, w.key = pythonStr(s.AsList().Get(0)), pythonStr(s.AsList().Get(1))
	}
	w.sortKeys = a.at(4, "sort_keys").IsTruthy()
	w.ensureASCII = a.at(1, "ensure_ascii").IsTruthy()
	w.write(a.at(0, ""), 0)
	return jinja.NewString(string(w.out)), nil
}

func rangeOf(a callArgs) (jinja.Value, error) {
	var bounds [3]int64
	for i, v := range a.positional {
		if i >= len(bounds) || !v.IsInt() {
			return jinja.None(), fmt.Errorf("range takes one to three integers")
		}
		bounds[i] = v.AsInt()
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	switch len(a.positional) {
	case 1:
		start, stop, step = 0, start, 1
	case 2:
		step = 1
	}
	if step == 0 {
		return jinja.None(), fmt.Errorf("range takes one to three integers, the step not 0")
	}
	var items []jinja.Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(items) == maxRange {
			return jinja.None(), fmt.Errorf("range has more than %d numbers", maxRange)
		}
		items = append(items, jinja.NewInt(i))
	}
	return jinja.NewList(items), nil
}

func (run *templateRun) raise(a callArgs) (jinja.Value, error) {
	run.refused = &RefusedError{Reason: pythonStr(a.at(0, "message"))}
	return jinja.None(), run.refused
}

func (run *templateRun) strftime(a callArgs) (jinja.Value, error) {
	now := run.now
	if now.IsZero() {
		now = time.Now()
	}
	return jinja.NewString(strftime(now, pythonStr(a.at(0, "format")))), nil
}

// strftime writes t as Python's strftime does in the C locale. Unknown directives stay.
func strftime(t time.Time, format string) string {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'm': "01", 'Y': "2006", 'y': "06", 'H': "15",
		'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'z': "-0700", 'Z': "MST", 'F': "2006-01-02", 'T': "15:04:05",
		'D': "01/02/06", 'R': "15:04", 'e': "_2", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		begin := i
		i++
		bare := format[i] == '-' && i+1 < len(format) // glibc: without padding
		if bare {
			i++
		}
		text := ""
		switch layout, known := layouts[format[i]]; {
		case format[i] == '%':
			text = "%"
		case format[i] == 'j':
			text = fmt.Sprintf("%03d", t.YearDay())
		case format[i] == 'f':
			text = fmt.Sprintf("%06d", t.Nanosecond()/1000)
		case format[i] == 's':
			text = strconv.FormatInt(t.Unix(), 10)
		case known:
			text = t.Format(layout)
		default:
			text = format[begin : i+1]
		}
		if bare {
			text = strings.TrimLeft(text, "0 ")
			if text == "" {
				text = "0"
			}
		}
		b.WriteString(text)
	}
	return b.String()
}
