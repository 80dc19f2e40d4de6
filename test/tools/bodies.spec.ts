import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** What the check of bodies says of a project with these files. */
function check(files: Readonly<Record<string, string>>): { status: number | null; output: string } {
  const project = mkdtempSync(join(tmpdir(), 'rookery-bodies-'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(project, path)), { recursive: true });
    writeFileSync(join(project, path), text);
  }
  const args = [join(root, 'tools', 'bodies.mjs'), `--project=${project}`];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  rmSync(project, { recursive: true, force: true });
  return { status, output: stdout + stderr };
}

const schema = `export const body = json.object({ user_id: json.required('Who.', json.string()), reason: json.optional('Why.', json.string()), n: json.required('How often.', json.integer()) });\n`;
const controller = (parameter: string): string => `class C {\n  put(${parameter}): void {}\n}\n`;

describe('the check of bodies', () => {
  it('lets types that come from the schema pass', () => {
    const files = {
      'libs/one/src/a.ts': `${schema}export type Body = Infer<typeof body>;\ntype Open = Infer<typeof body> & JsonObject;\n`,
      'libs/one/src/b.ts': controller('@JsonBody(body) given: Infer<typeof body>'),
      'libs/one/src/c.ts': controller('@JsonBody(body, { optional: true }) { n }: Body'),
      'libs/one/src/d.ts': controller('@JsonBody(body) given: Open'),
      'libs/one/src/e.ts': controller('@SignedContent(body) content: Infer<typeof body>'),
      'libs/one/src/f.query.ts': `interface Row { user_id: string; reason: string; n: number }\n`,
    };
    expect(check(files)).toEqual({ status: 0, output: '' });
  });

  it('wants a sentence about each key and parameter', () => {
    const texts = ["''", "'who'", "'Who it is'", 'text', "'Who it is.'"];
    const makers = texts.flatMap((said) => [`json.required(${said}, json.string())`, `param.string(${said})`]);
    const { status, output } = check({
      'libs/one/src/a.ts': `${schema}export const all = [\n${makers.join(',\n')}];\n`,
    });
    expect([...output.matchAll(/a\.ts:(\d+): say in a sentence/g)].map(([, line]) => Number(line))).toEqual([
      ...[3, 4, 5, 6, 7, 8, 9, 10],
    ]);
    expect(status).toBe(1);
  });

  it.each([
    ['a type literal', controller('@JsonBody(body) given: { user_id: string }'), 'is of type Infer<typeof body>'],
    ['an interface', `interface B { n: number }\n${controller('@JsonBody(body) given: B')}`, 'is of type Infer'],
    ['another schema', controller('@JsonBody(body) given: Infer<typeof other>'), 'is of type Infer<typeof body>'],
    ['a schema without a name', controller('@JsonBody(json.object({})) given: object'), 'give the schema'],
    ['a form without a schema', controller('@FormBody() given: Record<string, string[]>'), 'give the schema'],
    ['a form of another type', controller('@FormBody(body) given: object'), 'is of type InferForm<typeof body>'],
    ['a field of a form that nothing is said of', `const form = formOf({ name: '' });\n`, 'say in a sentence'],
    ['a body without a schema', controller('@JsonBody() given: JsonObject'), 'give the schema'],
    ['a signed body without a schema', controller('@SignedContent() given: JsonObject'), 'give the schema'],
    ['the schema once more', `export interface B { n: number; reason?: string; user_id: string }\n`, 'once more'],
  ])('finds %s', (_, text, message) => {
    const { status, output } = check({ 'libs/one/src/a.ts': schema, 'libs/one/src/b.ts': text });
    expect(output).toContain(message);
    expect(status).toBe(1);
  });
});
