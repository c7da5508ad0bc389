package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// ownFilters are filters that the engine has and answers otherwise than Jinja2, for some
// arguments without a word. Templates reach ours under the name of octet_ and theirs.
func ownFilters() map[string]func(callArgs) (jinja.Value, error) {
	return map[string]func(callArgs) (jinja.Value, error){
		"tojson":     jsonDumps,
		"first":      func(a callArgs) (jinja.Value, error) { return endOf(a, false) },
		"last":       func(a callArgs) (jinja.Value, error) { return endOf(a, true) },
		"map":        mapItems,
		"sum":        sumItems,
		"selectattr": func(a callArgs) (jinja.Value, error) { return selectItems(a, true) },
		"rejectattr": func(a callArgs) (jinja.Value, error) { return selectItems(a, false) },
	}
}

// ownFilter is the name under which a template reaches a filter.
func ownFilter(name string) string { return "octet_" + name }

// endOf is the first or last of a list, of a dict's keys, or of a string's characters.
func endOf(a callArgs, last bool) (jinja.Value, error) {
	v := a.at(0, "")
	switch {
	case v.IsString():
		text := v.AsString()
		r, size := utf8.DecodeRuneInString(text)
		if last {
			r, size = utf8.DecodeLastRuneInString(text)
		}
		if size == 0 {
			return jinja.Undefined(), nil
		}
		return jinja.NewString(string(r)), nil
	case v.IsDict():
		v = keysOf(v)
	case !v.IsList():
		return jinja.Undefined(), fmt.Errorf("first and last take a list, a mapping or a string")
	}
	items := v.AsList().Items
	switch {
	case len(items) == 0:
		return jinja.Undefined(), nil
	case last:
		return items[len(items)-1], nil
	}
	return items[0], nil
}

func keysOf(dict jinja.Value) jinja.Value {
	var keys []jinja.Value
	for _, key := range dict.AsDict().Keys {
		keys = append(keys, jinja.NewString(key))
	}
	return jinja.NewList(keys)
}

// listOf is the items that a filter works on; what is undefined has none.
func listOf(a callArgs, filter string) ([]jinja.Value, error) {
	v := a.at(0, "")
	switch {
	case v.IsList():
		return v.AsList().Items, nil
	case v.IsDict():
		return keysOf(v).AsList().Items, nil
	case v.IsUndefined():
		return nil, nil
	}
	return nil, fmt.Errorf("%s takes a list", filter)
}

// attributeOf follows a name with dots.
func attributeOf(item jinja.Value, name string) jinja.Value {
	for part := range strings.SplitSeq(name, ".") {
		if !item.IsDict() {
			return jinja.Undefined()
		}
		var ok bool
		if item, ok = item.AsDict().Get(part); !ok {
			return jinja.Undefined()
		}
	}
	return item
}

// mapItems is map(attribute=...) and map of the filters that templates use.
func mapItems(a callArgs) (jinja.Value, error) {
	items, err := listOf(a, "map")
	if err != nil {
		return jinja.None(), err
	}
	var of func(jinja.Value) jinja.Value
	if attribute, ok := a.named["attribute"]; ok {
		of = func(item jinja.Value) jinja.Value {
			if v := attributeOf(item, pythonStr(attribute)); !v.IsUndefined() {
				return v
			}
			return a.named["default"]
		}
	} else {
		filter := pythonStr(a.at(1, ""))
		apply, known := map[string]func(jinja.Value) jinja.Value{
			"string": func(v jinja.Value) jinja.Value { return jinja.NewString(pythonStr(v)) },
			"trim":   func(v jinja.Value) jinja.Value { return jinja.NewString(strings.TrimSpace(pythonStr(v))) },
			"upper":  func(v jinja.Value) jinja.Value { return jinja.NewString(strings.ToUpper(pythonStr(v))) },
			"lower":  func(v jinja.Value) jinja.Value { return jinja.NewString(strings.ToLower(pythonStr(v))) },
			"tojson": func(v jinja.Value) jinja.Value {
				text, _ := jsonDumps(callArgs{positional: []jinja.Value{v}}) // it takes any value
				return text
			},
		}[filter]
		if !known || len(a.positional) > 2 {
			return jinja.None(), fmt.Errorf("map(%s) is not supported, only an attribute, string, trim, upper, lower and tojson", pythonRepr(a.at(1, "")))
		}
		of = apply
	}
	out := make([]jinja.Value, len(items))
	for i, item := range items {
		out[i] = of(item)
	}
	return jinja.NewList(out), nil
}

func sumItems(a callArgs) (jinja.Value, error) {
	items, err := listOf(a, "sum")
	if err != nil {
		return jinja.None(), err
	}
	attribute := a.at(1, "attribute")
	whole, total := int64(0), 0.0
	exact := true
	for _, item := range append(slices.Clone(items), a.at(2, "start")) {
		if !attribute.IsUndefined() && !attribute.IsNone() && item.IsDict() {
			item = attributeOf(item, pythonStr(attribute))
		}
		switch {
		case item.IsInt():
			whole += item.AsInt()
			total += float64(item.AsInt())
		case item.IsFloat():
			exact = false
			total += item.AsFloat()
		case !item.IsUndefined():
			return jinja.None(), fmt.Errorf("sum takes numbers")
		}
	}
	if exact {
		return jinja.NewInt(whole), nil
	}
	return jinja.NewFloat(total), nil
}

// selectItems keeps the items whose attribute passes a test, or those where it does not.
func selectItems(a callArgs, keep bool) (jinja.Value, error) {
	items, err := listOf(a, "selectattr")
	if err != nil {
		return jinja.None(), err
	}
	attribute, operand := pythonStr(a.at(1, "attribute")), a.at(3, "")
	tests := map[string]func(v jinja.Value) bool{
		"truthy":    jinja.Value.IsTruthy,
		"defined":   func(v jinja.Value) bool { return !v.IsUndefined() },
		"undefined": jinja.Value.IsUndefined,
		"none":      jinja.Value.IsNone,
		"string":    jinja.Value.IsString,
		"mapping":   jinja.Value.IsDict,
		"sequence":  func(v jinja.Value) bool { return v.IsList() || v.IsString() },
		"equalto":   func(v jinja.Value) bool { return equalValues(v, operand) },
		"ne":        func(v jinja.Value) bool { return !equalValues(v, operand) },
		"in": func(v jinja.Value) bool {
			return operand.IsList() && slices.ContainsFunc(operand.AsList().Items, func(o jinja.Value) bool { return equalValues(v, o) })
		},
	}
	tests["eq"], tests["=="], tests["!="] = tests["equalto"], tests["equalto"], tests["ne"]
	name := "truthy"
	if len(a.positional) > 2 {
		name = pythonStr(a.positional[2])
	}
	test, known := tests[name]
	if !known {
		return jinja.None(), fmt.Errorf("selectattr with the test %q is not supported", name)
	}
	var out []jinja.Value
	for _, item := range items {
		if test(attributeOf(item, attribute)) == keep {
			out = append(out, item)
		}
	}
	return jinja.NewList(out), nil
}

// equalValues compares as Python does, by what is written: 1 and 1.0 are one number.
func equalValues(a, b jinja.Value) bool {
	if a.IsUndefined() || b.IsUndefined() {
		return a.IsUndefined() && b.IsUndefined()
	}
	if a.IsInt() && b.IsFloat() {
		return float64(a.AsInt()) == b.AsFloat()
	}
	if a.IsFloat() && b.IsInt() {
		return a.AsFloat() == float64(b.AsInt())
	}
	return pythonRepr(a) == pythonRepr(b)
}
