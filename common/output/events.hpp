// The output of a run with --json: one line of JSON (JSON Lines) for each step, paragraph,
// value, tensor, table, figure and piece of generated text, for programs that display a run.
//
//   {"type": "option", "name": "--seq-len", "kind": "integer", "low": 1, "high": 1024,
//       "default": "10", "help": "..."}
//       with --help --json: one line per option. Kinds: integer and number, which have limits;
//       choice, which has "choices" instead; text, path, folder, ids and flag. The default is
//       left out if there is none.
//   {"type": "step", "number": 1, "title": "..."}
//   {"type": "text", "text": "..."}
//   {"type": "value", "name": "...", "text": "..."}
//   {"type": "tensor", "name": "...", "shape": [2, 3], "values": [...], "printed": "..."}
//       values in row-major order; left out for more than 65536 elements. A tensor that is
//       printed as a table also has "rows" and "columns", their names.
//   {"type": "table", "headings": ["..."], "rows": [["..."]]}
//   {"type": "generated", "text": "..."}
//   {"type": "progress", "text": "..."}
//   {"type": "figure", "name": "...", "panel": 0, "panels": 2, "kind": "heatmap" (or "lines" or
//       "bars"), ...}: one line per panel, with the members of the structs in plot.hpp
#pragma once

#include <string>

#include "common/files/json_file.hpp"
#include "common/output/plot.hpp"

namespace llm {

// Prints the line, unless --quiet or --only leave it out.
void emit(const std::string& type, JsonMembers members);

// The numbers with the fewest digits that give the same floats.
std::vector<double> shortest_decimals(std::span<const Real> values);

// One line for each panel.
void emit_figure(const std::string& name, const std::vector<Panel>& panels);

}  // namespace llm
