package rules

import (
	"go/ast"
	"strings"
)

// declared is the declaration of a type, and the file in which it stands.
type declared struct {
	file *source
	spec *ast.TypeSpec
}

func (d declared) name() string { return d.file.folder() + " " + d.spec.Name.Name }

// folder returns the directory of a file, and another name for the files of an external test package,
// because their types are separate.
func (f *source) folder() string {
	if strings.HasSuffix(f.syntax.Name.Name, "_test") {
		return f.dir + "_test"
	}
	return f.dir
}

// types are the declarations of types, by directory and name.
type types map[string]declared

func (t *tree) types() types {
	all := types{}
	for _, f := range t.files {
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok {
				d := declared{f, spec}
				all[d.name()] = d
			}
			return true
		})
	}
	return all
}

// fieldsOfStructs counts the fields of the product's structs.
func fieldsOfStructs(t *tree) map[string]int {
	return t.fields(func(ast.Expr) bool { return true })
}

// booleansOfStructs counts the fields of structs that are a bool.
func booleansOfStructs(t *tree) map[string]int {
	return t.fields(func(of ast.Expr) bool { name, ok := of.(*ast.Ident); return ok && name.Name == "bool" })
}

func (t *tree) fields(counted func(of ast.Expr) bool) map[string]int {
	all, sizes := t.types(), map[string]int{}
	for name, d := range all {
		if d.file.isProduct() {
			sizes[name] = all.fields(d, d.file.folder(), counted)
		}
	}
	return sizes
}

// methodsOfInterfaces counts the methods of all interfaces.
func methodsOfInterfaces(t *tree) map[string]int {
	all, sizes := t.types(), map[string]int{}
	for name, d := range all {
		sizes[name] = all.methods(d)
	}
	return sizes
}

// embedded finds the declaration of an embedded type; found is false if the project does not
// declare it.
func (all types) embedded(in *source, of ast.Expr) (d declared, found bool) {
	switch e := of.(type) {
	case *ast.StarExpr:
		return all.embedded(in, e.X)
	case *ast.IndexExpr:
		return all.embedded(in, e.X)
	case *ast.Ident:
		d, found = all[in.folder()+" "+e.Name]
	case *ast.SelectorExpr:
		if qualifier, ok := e.X.(*ast.Ident); ok {
			d, found = all[strings.TrimPrefix(in.imports[qualifier.Name], module+"/")+" "+e.Sel.Name]
		}
	}
	return d, found
}

// fields counts the fields of a struct that code in a directory can use and whose types are counted. The
// fields of an embedded struct count as fields of the struct. An embedded type that is not a struct of the
// project counts as one field.
func (all types) fields(d declared, from string, counted func(of ast.Expr) bool) (n int) {
	of, ok := d.spec.Type.(*ast.StructType)
	if !ok {
		return 0
	}
	for _, field := range of.Fields.List {
		inner, found := all.embedded(d.file, field.Type)
		_, isStruct := inner.specType().(*ast.StructType)
		switch {
		case len(field.Names) == 0 && found && isStruct:
			n += all.fields(inner, from, counted)
		case !counted(field.Type):
		case len(field.Names) == 0:
			n++
		default:
			for _, name := range field.Names {
				if name.IsExported() || d.file.folder() == from {
					n++
				}
			}
		}
	}
	return n
}

func (d declared) specType() ast.Expr {
	if d.spec == nil {
		return nil
	}
	return d.spec.Type
}

// methods counts the methods of an interface, with the methods of embedded interfaces of the project.
func (all types) methods(d declared) (n int) {
	of, ok := d.spec.Type.(*ast.InterfaceType)
	if !ok {
		return 0
	}
	for _, method := range of.Methods.List {
		if inner, found := all.embedded(d.file, method.Type); found && len(method.Names) == 0 {
			n += all.methods(inner)
		}
		n += len(method.Names)
	}
	return n
}
