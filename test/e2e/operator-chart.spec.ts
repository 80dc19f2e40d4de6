import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SigningKey } from '@rookery/events';
import { Config } from '@rookery/platform';
import { parse, parseAllDocuments } from 'yaml';

const container = join(process.cwd(), 'tools/release/container');
const chart = join(container, 'helm/rookery');
const values = parse(readFileSync(join(chart, 'values.yaml'), 'utf8')) as Record<string, unknown>;
const templates = readdirSync(join(chart, 'templates')).map((name) => ({
  name,
  text: readFileSync(join(chart, 'templates', name), 'utf8'),
}));

/** A value by its path: `image.tag`. */
const valueAt = (path: string): unknown =>
  path.split('.').reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], values);

/**
 * What the template language makes of a template, as far as this chart uses it: values and the release's name are put in, every
 * condition holds but those that begin with `not`, which hold too, and each list has one entry.
 */
function rendered(text: string): string {
  const indented = (value: unknown, spaces: number): string =>
    `\n${JSON.stringify(value, null, 1)
      .split('\n')
      .map((line) => ' '.repeat(spaces) + line)
      .join('\n')}`;
  return text
    .replaceAll(/^\s*\{\{-? (?:if|end|with|range)[^}]*\}\}\n/gm, '')
    .replaceAll(/\{\{ (?:if|end)[^}]*\}\}/g, '')
    .replaceAll(/\{\{- toYaml \.Values\.([\w.]+) \| nindent (\d+) \}\}/g, (_, path: string, spaces: string) =>
      indented(valueAt(path), Number(spaces)),
    )
    .replaceAll(/\{\{- toYaml \. \| nindent \d+ \}\}/g, ' {}')
    .replaceAll(/\{\{ toYaml \.Values\.[\w.]+ \| sha256sum \}\}/g, 'digest')
    .replaceAll(/\{\{ \.Values\.([\w.]+) \| toJson \}\}/g, (_, path: string) => JSON.stringify(valueAt(path)))
    .replaceAll(/\{\{ \.Values\.[\w.]+ \| default \(printf "%s-(\w+)" \.Release\.Name\) \}\}/g, 'release-$1')
    .replaceAll(/\{\{ \$?\.Release\.Name \}\}/g, 'release')
    .replaceAll(/\{\{ \.Values\.([\w.]+) \}\}/g, (_, path: string) => String(valueAt(path) || 'given'))
    .replaceAll('{{ . }}', '/given');
}

interface Thing {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly stringData?: Readonly<Record<string, string>>;
  readonly spec?: Record<string, unknown>;
}

const things = templates.flatMap(({ name, text }) => {
  const whole = rendered(text);
  expect({ name, left: /\{\{.*?\}\}/.exec(whole)?.[0] }).toEqual({ name, left: undefined });
  return parseAllDocuments(whole).map((document) => {
    expect({ name, errors: document.errors.map(String) }).toEqual({ name, errors: [] });
    return document.toJS() as Thing;
  });
});
const thing = (kind: string): Thing => things.find((one) => one.kind === kind)!;
const settings = thing('Secret').stringData!;
const pod = (thing('Deployment').spec as { template: { spec: PodSpec } }).template.spec;

interface PodSpec {
  readonly terminationGracePeriodSeconds: number;
  readonly containers: readonly [
    {
      readonly args: readonly [string];
      readonly env: readonly { readonly name: string; readonly value?: string }[];
      readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
      readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
    },
  ];
  readonly volumes: readonly { readonly name: string }[];
}

describe('the Helm chart', () => {
  it('names values that there are, and all of them', () => {
    const named = new Set(
      templates.flatMap(({ text }) => [...text.matchAll(/\.Values\.([\w.]+)/g)].map(([, path]) => path as string)),
    );
    for (const path of named) expect({ path, isThere: valueAt(path) !== undefined }).toEqual({ path, isThere: true });
    const isNamed = (path: string): boolean => [...named].some((one) => one === path || one.startsWith(`${path}.`));
    expect(Object.keys(values).filter((name) => !isNamed(name))).toEqual([]);
    for (const section of ['image', 'media', 'service', 'ingress', 'networkPolicy'])
      for (const name of Object.keys(valueAt(section) as object))
        expect({ section, name, isNamed: isNamed(`${section}.${name}`) }).toEqual({ section, name, isNamed: true });
  });

  it('gives the server settings that it knows, for several processes', () => {
    const given = { ...(parse(settings['homeserver.yaml']!) as object), ...(parse(settings['chart.yaml']!) as object) };
    const config = Config.fromObject({ ...given, processes: { address: '10.0.0.7' } });
    expect(config.warnings.map(String)).toEqual([]);
    expect(config.get('redis.enabled')).toBe(true);
    expect(config.get('database.name')).toBe('psycopg2');
    expect(config.get('processes.address')).toBe('10.0.0.7');
  });

  it('starts what the image has, on the ports and folders that its settings name', () => {
    const [{ args, env, ports, volumeMounts }] = pod.containers;
    const image = readFileSync(join(container, 'Containerfile'), 'utf8');
    const [, program = ''] = /exec node (\S+)/.exec(args[0]) ?? [];
    expect(image).toContain(`COPY ${program.split('/').at(-1)} `);
    expect(image).toContain(`"node", "${program}"`);
    expect(readFileSync(join(container, 'entrypoint.mjs'), 'utf8')).toContain('process.env.ROOKERY_CONFIG');
    const files = [
      env.find(({ name }) => name === 'ROOKERY_CONFIG')?.value,
      ...args[0].matchAll(/\/\w+\/\w+\.yaml/g),
    ].map(String);
    const own = parse(settings['chart.yaml']!) as {
      listeners: { port: number }[];
      signing_key_path: string;
      media_store_path: string;
    };
    const paths = [...files, own.signing_key_path, own.media_store_path];
    for (const path of paths)
      expect({ path, isMounted: volumeMounts.some(({ mountPath }) => path.startsWith(mountPath)) }).toEqual({
        path,
        isMounted: true,
      });
    expect(volumeMounts.map(({ name }) => name).sort()).toEqual(pod.volumes.map(({ name }) => name).sort());
    expect(ports).toEqual([{ name: 'http', containerPort: own.listeners[0]?.port }]);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(60);
  });

  it('is told of with commands that make what it needs', () => {
    const page = readFileSync('docs/operators/scaling.md', 'utf8');
    const [, command = ''] = /^(echo "ed25519 .*) > signing\.key$/m.exec(page) ?? [];
    const { stdout } = spawnSync('sh', ['-c', command], { encoding: 'utf8' });
    expect(SigningKey.parseFile(stdout)[0]?.keyId).toBe('ed25519:key1');
    expect(page).toContain('create secret generic rookery-signing-key');
    expect(values['signingKeySecret']).toBe('rookery-signing-key');
  });

  it('is of the version of the server', () => {
    const { appVersion } = parse(readFileSync(join(chart, 'Chart.yaml'), 'utf8')) as { appVersion: string };
    const { version } = JSON.parse(readFileSync('apps/homeserver/package.json', 'utf8')) as { version: string };
    expect(appVersion).toBe(version);
  });
});
