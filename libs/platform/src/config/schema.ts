import { orNull, orUnset } from './kinds.js';
import { rowOf, settingNames } from './table.js';

interface SchemaObject {
  description?: string;
  type: 'object' | readonly string[];
  properties: Record<string, unknown>;
  additionalProperties: boolean;
  required?: string[];
}

const mayBeEmpty = (row: ReturnType<typeof rowOf>): boolean => row.nullable === true && row.default === undefined;

/** A JSON Schema of the settings file, for editors that complete and check YAML. */
export function configurationSchema(): Record<string, unknown> {
  const root: SchemaObject = { type: 'object', properties: {}, additionalProperties: false, required: [] };
  for (const name of settingNames) {
    const row = rowOf(name);
    const keys = name.split('.');
    const last = keys.pop() ?? '';
    let section = root;
    for (const key of keys) {
      section.properties[key] ??= {
        type: ['object', 'null'],
        properties: {},
        additionalProperties: false,
      } satisfies SchemaObject;
      section = section.properties[key] as SchemaObject;
    }
    const note = [row.doc, row.rule, row.deprecated && `Deprecated: ${row.deprecated}.`].filter(Boolean).join(' ');
    section.properties[last] = {
      description: note,
      ...(row.removed?.refuse ? { not: {} } : mayBeEmpty(row) ? orUnset(row.kind) : orNull(row.kind.schema)),
      ...(row.deprecated !== undefined || row.removed ? { deprecated: true } : {}),
      ...(row.default === undefined ? {} : { default: row.default }),
    };
    if (row.required) root.required?.push(name);
  }
  root.required?.push('report_stats');
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Settings of a Rookery homeserver',
    ...root,
  };
}
