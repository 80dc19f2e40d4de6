import { isJsonObject } from '@rookery/matrix-types';
import { type ModuleEntry, moduleEntriesOf, ModuleLoadError, readDefinition } from '@rookery/module-host';
import { configurationSchema, loadConfig, SystemClock } from '@rookery/platform';
import { CommandError } from '../command-error.js';

type Schema = Readonly<Record<string, unknown>>;

/** What the settings' modules say of themselves. @param wanted only the entry of this name */
async function described(
  files: readonly string[],
  wanted?: string,
): Promise<{ entry: ModuleEntry; schema: Schema | undefined }[]> {
  const config = loadConfig(files);
  const clock = new SystemClock();
  const found: { entry: ModuleEntry; schema: Schema | undefined }[] = [];
  for (const entry of moduleEntriesOf(config)) {
    if (wanted !== undefined && entry.module !== wanted) continue;
    try {
      const { configJsonSchema } = await readDefinition(entry, { configDir: config.configDir, clock });
      found.push({ entry, schema: configJsonSchema });
    } catch (error) {
      if (!(error instanceof ModuleLoadError)) throw error;
      if (wanted !== undefined) throw new CommandError(error.message);
    }
  }
  return found;
}

/** The JSON Schema of what a module's `config` may hold. @throws CommandError where there is none */
export async function schemaOfModule(files: readonly string[], name: string): Promise<Schema> {
  const [found] = await described(files, name);
  if (!found) throw new CommandError(`The settings list no module ${name}`);
  if (!found.schema) throw new CommandError(`${name} does not say what its config may hold: see its README`);
  return found.schema;
}

/** The JSON Schema of the settings, in which each module's entry has what that module takes. */
export async function schemaWithModules(files: readonly string[]): Promise<Schema> {
  const root = configurationSchema() as { properties: Record<string, Record<string, unknown>> };
  const modules = root.properties['modules'] ?? {};
  const cases = (await described(files)).flatMap(({ entry, schema }) =>
    schema
      ? [
          {
            if: { properties: { module: { const: entry.module } }, required: ['module'] },
            // Of its own, so that what it refers to is inside of it.
            then: { properties: { config: { $id: `rookery-module:${encodeURIComponent(entry.module)}`, ...schema } } },
          },
        ]
      : [],
  );
  const items = isJsonObject(modules['items']) ? modules['items'] : {};
  root.properties['modules'] = { ...modules, items: { ...items, allOf: cases } };
  return root;
}

/** What a value may be, in a few words. */
function kindOf(schema: Schema): string {
  const { type, enum: values, const: only, items, anyOf, oneOf } = schema;
  if (only !== undefined) return JSON.stringify(only);
  if (Array.isArray(values)) return values.map((value) => JSON.stringify(value)).join(' or ');
  const options = anyOf ?? oneOf;
  if (Array.isArray(options)) return options.map((option) => kindOf(option as Schema)).join(' or ');
  if (Array.isArray(type)) return type.join(' or ');
  if (type === 'array') return isJsonObject(items) ? `list of ${kindOf(items)}` : 'list';
  return typeof type === 'string' ? type : 'any';
}

const rules = [
  ['minimum', 'at least'],
  ['exclusiveMinimum', 'more than'],
  ['maximum', 'at most'],
  ['exclusiveMaximum', 'less than'],
  ['minLength', 'characters: at least'],
  ['maxLength', 'characters: at most'],
  ['minItems', 'entries: at least'],
  ['maxItems', 'entries: at most'],
  ['pattern', 'matches'],
  ['format', 'is a'],
] as const;
/** What libraries say of every whole number means nothing. */
const isBound = (value: unknown): boolean => typeof value !== 'number' || Math.abs(value) < Number.MAX_SAFE_INTEGER;

/** A table of settings in Markdown. Objects inside of each other are one row per value. */
export function describeSettings(schema: Schema): string {
  const rows: string[][] = [];
  const look = (at: Schema, prefix: string): void => {
    const required: readonly unknown[] = Array.isArray(at['required']) ? at['required'] : [];
    for (const [name, given] of Object.entries((at['properties'] as Schema | undefined) ?? {})) {
      const part = (isJsonObject(given) ? given : {}) as Schema;
      const path = `${prefix}${name}`;
      const { default: usual, description = '' } = part;
      const more = rules.filter(([rule]) => isBound(part[rule]) && part[rule] !== undefined);
      const words = [description, ...more.map(([rule, word]) => `${word} ${String(part[rule])}`)].filter(Boolean);
      const standard = usual !== undefined ? `\`${JSON.stringify(usual)}\`` : required.includes(name) ? 'needed' : '';
      rows.push([`\`${path}\``, kindOf(part), standard, words.join('; ')]);
      look(part, `${path}.`);
      if (isJsonObject(part['items'])) look(part['items'], `${path}[].`);
    }
  };
  look(schema, '');
  if (rows.length === 0) return 'It takes no settings.';
  const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ');
  return [['setting', 'what', 'default', ''], ['---', '---', '---', '---'], ...rows]
    .map((row) => `| ${row.map(cell).join(' | ')} |`)
    .join('\n');
}
