package policy

import (
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// The schema is for editors. It accepts everything that Parse accepts, and refuses as much of the rest as
// a schema can describe.
const schemaFile = "../../docs/policies.schema.json"

func compileSchema(t *testing.T) *jsonschema.Schema {
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	require.NoError(t, err)
	return schema
}

func validate(schema *jsonschema.Schema, text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	return schema.Validate(value)
}

func TestSchema(t *testing.T) {
	schema := compileSchema(t)
	text, err := os.ReadFile("testdata/policies.yaml")
	require.NoError(t, err)
	require.NoError(t, validate(schema, string(text)))
	require.NoError(t, validate(schema, "policies: {}"))
	for _, policy := range valid {
		require.NoError(t, validate(schema, "policies: {p: "+policy+"}"), policy)
	}
	for _, test := range invalid {
		err := validate(schema, "policies:\n  p: "+test.policy)
		require.True(t, err != nil || !test.inSchema, test.policy)
	}
	for _, file := range []string{
		"policies:", "policies: []", "{}", "policies: {}\nversion: 1", "policies: {P: " + valid[0] + "}",
	} {
		require.Error(t, validate(schema, file), file)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := drawFile(t)
		parse(t, text)
		require.NoError(t, validate(schema, text), text)
	})
}
