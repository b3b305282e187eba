package command

import "cellserver/internal/resp"

// Docs returns the reply of COMMAND DOCS in RESP2 about the command with this name, such as config|set, without a
// server; nil if the rows do not have it.
func Docs(rows []*Command, name string) []byte {
	for _, row := range rows {
		if row.Name == name {
			c := &Call{Out: new(resp.Writer)}
			writeDocs(c, []*Command{row})
			return c.Out.Bytes()
		}
		if docs := Docs(row.Subs, name); docs != nil {
			return docs
		}
	}
	return nil
}
