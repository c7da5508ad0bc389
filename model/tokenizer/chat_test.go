package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// talk is the conversation of the tests. Keys are in no alphabetical order on purpose.
var talk = Conversation{
	Messages: json.RawMessage(`[
		{"role": "system", "content": "  Be brief. "},
		{"role": "user", "content": "héllo <b> 'x'"},
		{"role": "assistant", "content": "<think>\nhm\n</think>\n\nyo",
		 "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": [true, null, 1.0]}}}]},
		{"role": "tool", "name": "f", "content": null}]`),
	Tools: json.RawMessage(`[{"type": "function", "function": {"name": "f", "description": "a \"b\" <c>",
		"parameters": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {}}, "required": ["z"]}}}]`),
	AddGenerationPrompt: true,
	Variables:           map[string]json.RawMessage{"n": json.RawMessage("3"), "nothing": json.RawMessage("null")},
	Now:                 time.Date(2026, time.March, 5, 7, 8, 9, 0, time.UTC),
}

// constructs are what published templates are made of, with what Jinja2 makes of them.
var constructs = []struct{ name, template, want string }{
	{"trim_blocks takes one line break", "{% if n %}\n\nA{% endif %}\nB", "\nAB"},
	{"lstrip_blocks takes the indent of a statement", "x\n  {% if n %}\n  A\n  {% endif %}\ny", "x\n  A\ny"},
	{"an expression keeps its white space", "x\n  {{ n }}\n y", "x\n  3\n y"},
	{"text before a statement keeps its spaces", "{{ n }} {% if n %}A{% endif %} {{ n }} B", "3 A 3 B"},
	{"signs strip on both sides", "a \n {%- if n -%} \n b \n {%- endif -%} \n c", "abc"},
	{"expression signs", "a \n {{- n -}} \n b", "a3b"},
	{"plus keeps", "a\n  {%+ if n +%}\nb{% endif %}", "a\n  \nb"},
	{"comments vanish with their line", "a\n {# note #}\nb{#- x -#} c", "a\nbc"},
	{"the last line break goes", "a\n\n", "a\n"},
	{"raw text", "{% raw %}{{ x }}{% endraw %}", "{{ x }}"},
	{"generation marks only", "{%- generation %}\nA{%- endgeneration %}\nB", "AB"},
	{"braces close inside out", "{{ {'a': {'b': n}}['a']['b'] }}{{ '}}' }}", "3}}"},

	{"namespace", "{% set ns = namespace(c=0, s='') %}{% for m in messages %}{% set ns.c = ns.c + 1 %}{% set ns.s = m.role %}" +
		"{% endfor %}{{ ns.c }}{{ ns.s }}", "4tool"},
	{"loop variables do not leak", "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}{% endfor %}{{ x }}", "1"},
	{"if does not open a scope", "{% set x = 1 %}{% if n %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
	{"loop", "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{% if loop.first %}F{% endif %}{% if loop.last %}L{% endif %}" +
		"{{ loop.length }} {% endfor %}", "10F4 214 324 43L4 "},
	{
		"loop neighbours", "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }},{% endfor %}",
		"-,system,user,assistant,",
	},
	{
		"filtered loop", "{% for m in messages if m.role != 'system' %}{{ loop.index0 }}{{ m.role }};{% else %}none{% endfor %}",
		"0user;1assistant;2tool;",
	},
	{
		"filtered pairs", "{% for k, v in tools[0].function.items() if k != 'name' and v is string and 'k' != v.k %}{{ k }}{% if loop.last %}L{% endif %}{% endfor %}",
		"descriptionL",
	},
	{"empty loop", "{% for m in messages[9:] %}x{% else %}none{% endfor %}", "none"},
	{"break and continue", "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}" +
		"{% endfor %}", "023"},
	{
		"pairs", "{% for k, v in messages[2].tool_calls[0].function.arguments.items() %}{{ k }}={{ v }};{% endfor %}",
		"z=1;a=[True, None, 1.0];",
	},
	{"macro", "{% macro tag(x, y='d') -%}\n<{{ x }}|{{ y }}>\n{%- endmacro %}{{ tag(1) }} {{ tag('q', y=2) }}", "<1|d> <q|2>"},
	{"set block", "{% set c %}x{{ n }}{% endset %}[{{ c }}]", "[x3]"},

	{
		"defined", "{{ x is defined }}{{ n is defined }}{{ nothing is defined }}{{ messages[0].foo is defined }}{{ x is undefined }}",
		"FalseTrueTrueFalseTrue",
	},
	{"none", "{{ nothing is none }}{{ n is not none }}{{ messages[3].content is none }}{{ nothing }}", "TrueTrueTrueNone"},
	{"type tests", "{{ 'a' is string }}{{ tools[0] is mapping }}{{ messages is iterable }}{{ messages is sequence }}{{ n is number }}" +
		"{{ true is boolean }}{{ n is integer }}{{ tools is string }}", "TrueTrueTrueTrueTrueTrueTrueFalse"},
	{"undefined prints nothing", "[{{ x }}{{ messages[0]['foo'] }}]", "[]"},
	{"boolean operators give their operand", "{{ x or 'd' }}{{ nothing and 'q' }}{{ n and 'y' }}{{ not x }}", "dNoneyTrue"},
	{"inline if", "{{ ('a' if n else 'b') + 'c' }}{{ 'z' if not n }}{{ 'p' if x is defined else 'q' }}", "acq"},
	{
		"in", "{{ 'user' in ['user', 'tool'] }}{{ 'foo' not in messages[0] }}{{ 'role' in messages[0] }}{{ '<b>' in messages[1].content }}",
		"TrueTrueTrueTrue",
	},
	{"comparison", "{{ (n % 2 == 1) != (1 == 2) }}{{ 'a' < 'b' }}{{ 1 == 1.0 }}{{ n >= 3 and n <= 3 }}", "TrueTrueTrueTrue"},
	{"arithmetic", "{{ n - 1 }}{{ messages|length - 1 }}{{ 7 // 2 }}{{ 7 / 2 }}{{ -n + 5 }}", "2333.52"},
	{"index from the end", "{{ messages[-1].role }}{{ messages[-4]['role'] }}{{ ['a'][-1] }}", "toolsystema"},
	{"slices", "{% for m in messages[1:] %}{{ m.role[0] }}{% endfor %}{{ messages[:1]|length }}{{ messages[1:-1]|length }}" +
		"{% for m in messages[::-1] %}{{ m.role[:1] }}{% endfor %}{{ 'abc'[1:] }}{{ 'abc'[::-1] }}", "uat12tausbccba"},
	{"list sums", "{{ [1, 2] + [n] }}{{ (['a'] + ['b'])[-1] }}", "[1, 2, 3]b"},
	{"tilde", "{{ 'a' ~ n ~ 'b' }}", "a3b"},
	{"literals side by side", "{{ 'a' \"b\"\n'c'|upper }}", "ABC"},
	{"escapes", `{{ 'a\n\t\\\'"' }}{{ "\"\u00e9\x41" }}`, "a\n\t\\'\"\"éA"},
	{"characters, not bytes", "{{ messages[1].content[1] }}{{ messages[1].content|length }}", "é13"},

	{
		"strip", "[{{ messages[0].content.strip() }}][{{ '\nx\n'.lstrip('\\n') }}][{{ 'x\n\n'.rstrip('\\n') }}][{{ '##a#'.strip('#') }}]",
		"[Be brief.][x\n][x][a]",
	},
	{
		"split", "{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}|{{ 'ab'.split('</think>')[-1] }}|" +
			"{{ messages[2].content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|{{ 'a,b,c'.split(',', 1)|length }}",
		"yo|ab|hm|2",
	},
	{"prefix and suffix", "{{ 'abc'.startswith('ab') and not 'abc'.endswith('x') }}", "True"},
	{
		"other methods", "{{ 'aXa'.replace('X', '') }}{{ 'Ab'.lower() }}{{ 'Ab'.upper() }}{{ ', '.join(['a', 'b']) }}{{ 'abc'.find('c') }}",
		"aaabABa, b2",
	},
	{
		"more methods", "{{ 'a,b,c'.rsplit(',', 1)[0] }}{{ 'x\ny'.splitlines()|length }}{{ ' a  b '.split() }}{{ 'abc'.removeprefix('a') }}" +
			"{{ ('a' ~ ',b').split(',')[1].upper() }}{{ (['x', 'y']|join('-')).split('-')|last }}{{ '12'.isdigit() and not 'A'.islower() }}" +
			"{{ messages[1].content.split(' ')[0].split('l', 1)[1] }}{{ 'q' if not 'a b'.split(' ')[1] == 'c' else 'r' }}",
		"a,b2['a', 'b']bcByTrueloq",
	},
	{"dict get", "{{ messages[0].get('role') }}{{ messages[0].get('foo', 'd') }}", "systemd"},
	{
		"filters", "{{ ' a '|trim }}{{ x|default('d') }}{{ ''|default('e', true) }}{{ 'a'|upper }}{{ messages|map(attribute='role')|join(',') }}",
		"adeAsystem,user,assistant,tool",
	},
	{"selectattr", "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}" +
		"{{ (messages|rejectattr('role', 'equalto', 'system')|first).role }}{{ (messages|last).role }}", "1usertool"},
	{
		"selectattr by presence", "{{ messages|selectattr('tool_calls', 'defined')|list|length }}{{ messages|rejectattr('tool_calls')|list|length }}" +
			"{{ messages|selectattr('role', 'in', ['user', 'tool'])|list|length }}{{ messages|selectattr('content', 'none')|list|length }}", "1321",
	},
	{"ends of strings", "{{ 'héy'|first }}{{ 'yé'|last }}{{ {'a': 1}|first }}{{ ''|first }}", "héa"},
	{"map of filters", "{{ [1, none]|map('string')|join(',') }}{{ messages|map(attribute='x.y', default='-')|join }}", "1,None----"},
	{"sums", "{{ [1, 2]|sum }}{{ [{'n': 1}, {'n': 2.5}]|sum(attribute='n') }}", "33.5"},
	{"number filters", "{{ '3'|int + 1 }}{{ 3|string + 'x' }}{{ 3.7|int }}", "43x3"},

	{"tojson keeps the order of keys", "{{ messages[2].tool_calls[0].function.arguments | tojson }}", `{"z": 1, "a": [true, null, 1.0]}`},
	{
		"tojson escapes little", "{{ messages[1].content|tojson }}{{ tools[0].function.description | tojson }}",
		`"héllo <b> 'x'"` + `"a \"b\" <c>"`,
	},
	{"tojson indents", "{{ tools[0].function.parameters | tojson(indent=2) }}", `{
  "type": "object",
  "properties": {
    "z": {
      "type": "integer"
    },
    "a": {}
  },
  "required": [
    "z"
  ]
}`},
	{"tojson separators", "{{ {'a': [1, 2], 'é': 1} | tojson(separators=(',', ':'), ensure_ascii=true) }}", `{"a":[1,2],"\u00e9":1}`},
	{
		"printed values", "{{ messages[2].tool_calls[0] }}{{ [\"it's\", 0.1, 2.0] }}",
		`{'type': 'function', 'function': {'name': 'f', 'arguments': {'z': 1, 'a': [True, None, 1.0]}}}["it's", 0.1, 2.0]`,
	},
	{
		"strftime_now", "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A, %B %-d, %Y %H:%M:%S') }}",
		"05 Mar 2026|Thursday, March 5, 2026 07:08:09",
	},
	{"special tokens", "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}", "<s>|</s>|False"},

	{"header style", `{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|h|>system<|/h|>\n\n" }}
{%- if tools is not none %}
    {{- "Tools: " }}
    {%- for t in tools %}
        {{- t.function.name | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system }}
{{- "<|e|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|h|>' + message['role'] + '<|/h|>\n\n'+ message['content'] | trim + '<|e|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- call.arguments | tojson }}
        {{- "}" }}
        {{- "<|e|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|h|>assistant<|/h|>\n\n' }}
{%- endif %}
`, "<s><|h|>system<|/h|>\n\nTools: \"f\"\n\nBe brief.<|e|><|h|>user<|/h|>\n\nhéllo <b> 'x'<|e|>" +
		`{"name": "f", "parameters": {"z": 1, "a": [true, null, 1.0]}}` + "<|e|><|h|>assistant<|/h|>\n\n"},

	{"thinking style", `{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<r>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in message.content %}
                {%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
                {%- set reasoning = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last %}
            {%- if loop.last or (not loop.last and reasoning) %}
                {{- '<a>' + '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- endif %}
        {%- endif %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<t>' }}
        {%- endif %}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '</t>' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<a>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}`, "<a><think>\nhm\n</think>\n\nyo<t></t><a>"},

	{
		"inline style", `{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}` +
			`{% set ns = namespace(is_first=false, system='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}` +
			`{%- set ns.system = message['content'] %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system }}` +
			`{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<U>' + message['content']}}{%- endif %}` +
			`{%- if message['role'] == 'assistant' and message['content'] is not none %}{% set content = message['content'] %}` +
			`{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<A>' + content + eos_token}}` +
			`{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<A>'}}{% endif %}`,
		"<s>  Be brief. <U>héllo <b> 'x'<A>\n\nyo</s><A>",
	},
}

func renderer(t *testing.T, template string) *ChatTemplate {
	t.Helper()
	compiled, err := compileTemplate("test", template)
	if err != nil {
		t.Fatal(err)
	}
	return &ChatTemplate{plain: compiled, tools: compiled, tokens: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
}

func TestTemplateConstructsRenderAsJinja2Does(t *testing.T) {
	for _, c := range constructs {
		t.Run(c.name, func(t *testing.T) {
			got, err := renderer(t, c.template).Render(talk)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("\n got %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestTemplatesRefuseByException(t *testing.T) {
	c := renderer(t, "{% if messages[0].role != 'user' %}{{ raise_exception('Start with the user, not ' ~ messages[0].role) }}{% endif %}")
	_, err := c.Render(talk)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reason != "Start with the user, not system" {
		t.Errorf("got %v", err)
	}
	if text, err := c.Render(Conversation{Messages: TextMessages(Message{"user", "hi"})}); err != nil || text != "" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestBrokenTemplatesAndMessagesAreErrors(t *testing.T) {
	for _, template := range []string{
		"{% if %}", "{{ a", "{# a", "{{ 'a }}", "{% unknown %}", "{% raw %}x", "{{ 1 2 }}", "{% if a %}",
		"{{ '%s' % n }}", "{{ messages.0.role }}", "{% set x | upper %}a{% endset %}", "{% for k, v in a.items() if f(k=1) %}{% endfor %}",
	} {
		if _, err := compileTemplate("test", template); err == nil {
			t.Errorf("%q compiles", template)
		}
	}
	for _, template := range []string{
		"{{ undefined_function() }}", "{{ n|no_filter }}", "{{ range(200000) }}", "{{ 'a'.no_method() }}",
		"{{ messages|map('length') }}", "{{ messages|selectattr('a', 'odd') }}", "{{ n|first }}", "{{ ['a']|sum }}", "{{ n|map('string') }}",
	} {
		if _, err := renderer(t, template).Render(talk); err == nil {
			t.Errorf("%q renders", template)
		}
	}
	for _, messages := range []string{"", "null", "{}", "[", `"x"`, "[]]"} {
		if _, err := renderer(t, "x").Render(Conversation{Messages: json.RawMessage(messages)}); err == nil {
			t.Errorf("messages %q are accepted", messages)
		}
	}
}

func TestTemplatesComeFromTheirFiles(t *testing.T) {
	write := func(dir, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	vocabulary := `{"model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1}, "merges": []}}`
	hi := TextMessages(Message{"user", "hi"})
	tools := json.RawMessage(`[{"name": "f"}]`)
	for _, c := range []struct{ name, config, jinja, plain, withTools string }{
		{"one", `{"chat_template": "{{ bos_token }}A", "bos_token": {"content": "<s>"}}`, "", "<s>A", "<s>A"},
		{"named", `{"chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]}`, "", "A", "B"},
		{"own file", `{"chat_template": "A"}`, "C{{ messages[0].content }}\n", "Chi", "Chi"},
	} {
		dir := t.TempDir()
		write(dir, fileTokenizer, vocabulary)
		write(dir, fileConfig, c.config)
		if c.jinja != "" {
			write(dir, fileTemplate, c.jinja)
		}
		tok, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		template, err := tok.ChatTemplate()
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range []struct {
			tools json.RawMessage
			want  string
		}{{nil, c.plain}, {json.RawMessage("[]"), c.plain}, {tools, c.withTools}} {
			got, err := template.Render(Conversation{Messages: hi, Tools: run.tools})
			if err != nil || got != run.want {
				t.Errorf("%s, tools %s: got %q, %v, want %q", c.name, run.tools, got, err, run.want)
			}
		}
	}
	dir := t.TempDir()
	write(dir, fileTokenizer, vocabulary)
	write(dir, fileConfig, `{"chat_template": null}`)
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tok.ChatTemplate(); !errors.Is(err, ErrNoChatTemplate) {
		t.Errorf("got %v", err)
	}
}

func FuzzTemplatesDoNotPanic(f *testing.F) {
	for _, c := range constructs {
		f.Add(c.template)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if strings.Contains(source, "macro") || strings.Contains(source, "loop(") {
			return // recursion without end is the template's own
		}
		if compiled, err := compileTemplate("test", source); err == nil {
			_, _ = (&ChatTemplate{plain: compiled, tools: compiled}).Render(Conversation{Messages: TextMessages(Message{"user", "hi"})})
		}
	})
}
