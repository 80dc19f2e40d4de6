import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { fileProblem } from '@rookery/platform';
import { isMap, isScalar, parseDocument, type YAMLMap } from 'yaml';
import { replaceFile } from '../replace-file.js';
import { CommandError } from '../command-error.js';

const options = { version: '1.1', merge: true, logLevel: 'silent' } as const;

/**
 * Writes `section: {name: value}` into a settings file; nothing else of its text changes.
 * @returns whether it was otherwise before
 * @throws CommandError when it cannot be done without changing more
 */
export function setSetting(file: string, [section, name]: readonly [string, string], value: boolean): boolean {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${fileProblem(error)}`);
  }
  const document = parseDocument(text, options);
  const before = plain(text) as Readonly<Record<string, Plain | null>> | null;
  if (before?.[section]?.[name] === value) return false;
  const changed = withSetting(text, document.contents, section, name, value);
  if (changed === undefined || !isDeepStrictEqual(plain(changed), wanted(before, section, name, value))) {
    throw new CommandError(
      `Set ${section}.${name} to ${value} in ${file} by hand: the file is too unusual to be changed`,
    );
  }
  replaceFile(file, changed);
  return true;
}

type Plain = Readonly<Record<string, unknown>>;

const plain = (text: string): unknown => parseDocument(text, options).toJS() as unknown;

const wanted = (before: unknown, section: string, name: string, value: boolean): Plain => ({
  ...(before as Plain | null),
  [section]: { ...((before as Plain | null)?.[section] as Plain | null), [name]: value },
});

/** The last one: it is the one that holds. */
const pairOf = (map: unknown, name: string): YAMLMap['items'][number] | undefined =>
  isMap(map) ? (map as YAMLMap).items.findLast(({ key }) => isScalar(key) && key.value === name) : undefined;

function withSetting(
  text: string,
  contents: unknown,
  section: string,
  name: string,
  value: boolean,
): string | undefined {
  const found = pairOf(contents, section);
  if (found === undefined) return `${text.replace(/\n*$/, '\n')}${section}:\n  ${name}: ${value}\n`;
  const scalar = pairOf(found.value, name)?.value;
  if (isScalar(scalar) && scalar.range != null)
    return text.slice(0, scalar.range[0]) + String(value) + text.slice(scalar.range[1]);
  if (!isMap(found.value) || found.value.range == null) return undefined;
  const [start] = found.value.range;
  if (found.value.flow) {
    const isEmpty = (found.value as YAMLMap).items.length === 0;
    return `${text.slice(0, start + 1)}${name}: ${value}${isEmpty ? '' : ', '}${text.slice(start + 1)}`;
  }
  const indent = text.slice(text.lastIndexOf('\n', start - 1) + 1, start);
  return /^ +$/.test(indent) ? `${text.slice(0, start)}${name}: ${value}\n${indent}${text.slice(start)}` : undefined;
}
