"""What everything else is made of: records, errors, rubrics, expressions, and the rules that they follow."""
