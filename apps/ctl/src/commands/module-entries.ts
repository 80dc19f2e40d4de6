import { readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { type Document, isMap, isSeq, parseDocument, type YAMLMap, type YAMLSeq } from 'yaml';
import { CommandError } from '../command-error.js';

/** Lists a module in a settings file, whose comments stay. Whether it was not listed before. */
export function addModuleEntry(file: string, module: string): boolean {
  const document = read(file);
  const modules = listOf(document, file) ?? emptyList(document);
  if (modules.items.some((item) => nameOf(item) === module)) return false;
  modules.flow = false;
  modules.add(document.createNode({ module }));
  write(file, document);
  return true;
}

/** Takes a module out of a settings file. Whether it was listed. */
export function removeModuleEntry(file: string, module: string): boolean {
  const document = read(file);
  const modules = listOf(document, file);
  const index = modules?.items.findIndex((item) => nameOf(item) === module) ?? -1;
  if (!modules || index < 0) return false;
  modules.items.splice(index, 1);
  if (modules.items.length === 0) document.delete('modules');
  write(file, document);
  return true;
}

function read(file: string): Document {
  const document = parseDocument(readFileSync(file, 'utf8'));
  const [problem] = document.errors;
  if (problem) throw new CommandError(`${file} is not YAML: ${problem.message.split('\n')[0] ?? ''}`);
  return document;
}

/** Replaces the file as a whole, with its permissions, so that nobody ever reads half of it. */
function write(file: string, document: Document): void {
  const temporary = `${file}.new`;
  writeFileSync(temporary, document.toString({ lineWidth: 0 }), { mode: statSync(file).mode });
  renameSync(temporary, file);
}

function listOf(document: Document, file: string): YAMLSeq | undefined {
  const modules: unknown = document.get('modules');
  if (modules === undefined || modules === null) return undefined;
  if (!isSeq(modules)) throw new CommandError(`${file}: modules is not a list`);
  return modules;
}

function emptyList(document: Document): YAMLSeq {
  document.set('modules', document.createNode([]));
  return document.get('modules') as YAMLSeq;
}

const nameOf = (item: unknown): unknown => (isMap(item) ? (item as YAMLMap).get('module') : undefined);
