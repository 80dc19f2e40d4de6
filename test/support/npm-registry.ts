import { once } from 'node:events';
import { createReadStream, existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync, gzipSync } from 'node:zlib';

const root = fileURLToPath(new URL('../../', import.meta.url));

type Manifest = Record<string, unknown> & { readonly name: string; readonly version: string };

interface Version {
  readonly manifest: Manifest;
  /** A packed file, or a folder that is packed when somebody asks. */
  readonly source: string;
}

/**
 * A package registry on the loopback address: what tests publish, and beside it everything that this checkout has installed. It
 * needs no network, and knows of nothing else.
 */
export class NpmRegistry {
  readonly #published = new Map<string, Map<string, Version>>();
  readonly #installed: ReadonlyMap<string, Map<string, Version>>;
  /** Names that were asked for and that nobody has. */
  readonly unknown = new Set<string>();

  private constructor(
    readonly url: string,
    readonly stop: () => Promise<void>,
  ) {
    this.#installed = installed();
  }

  static async start(): Promise<NpmRegistry> {
    const server = createServer();
    // A package may take long to pack on a busy machine: nobody's connection ends meanwhile.
    Object.assign(server, { keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const registry = new NpmRegistry(url, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    });
    server.on('request', (request, response) => registry.#serve(request, response));
    return registry;
  }

  /** Settings for npm that let it ask nobody else. */
  env(cache: string): NodeJS.ProcessEnv {
    const { PATH, HOME } = process.env;
    return {
      ...{ PATH, HOME },
      npm_config_registry: `${this.url}/`,
      npm_config_userconfig: join(cache, 'npmrc'),
      npm_config_cache: cache,
      npm_config_audit: 'false',
      npm_config_fund: 'false',
      npm_config_update_notifier: 'false',
      npm_config_fetch_retries: '2',
      npm_config_fetch_retry_mintimeout: '100',
      // The programs that packages bring along are there already; nothing is compiled or fetched in a test.
      npm_config_ignore_scripts: 'true',
    };
  }

  /** Publishes a packed package. @param changes of its manifest: another version of the same */
  publish(tarball: string, changes: Partial<Manifest> = {}): Manifest {
    const manifest = { ...manifestOf(readFileSync(tarball)), ...changes };
    const versions = this.#published.get(manifest.name) ?? new Map<string, Version>();
    versions.set(manifest.version, { manifest, source: tarball });
    this.#published.set(manifest.name, versions);
    return manifest;
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const path = decodeURIComponent(new URL(request.url ?? '/', this.url).pathname.slice(1));
    const json = (status: number, body: unknown): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (path === '-/v1/search') return json(200, this.#search(new URL(request.url ?? '/', this.url).searchParams));
    const [, name = path, version] = /^(.+)\/-\/(.+)\.tgz$/.exec(path) ?? [];
    const versions = this.#published.get(name) ?? this.#installed.get(name);
    if (version === undefined) {
      if (versions) return json(200, this.#packument(name, versions));
      this.unknown.add(name);
      return json(404, { error: 'Not found' });
    }
    const found = versions?.get(version);
    if (!found) return json(404, { error: 'Not found' });
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    if (found.source.endsWith('.tgz')) createReadStream(found.source).pipe(response);
    else response.end(pack(found.source));
  }

  #packument(name: string, versions: ReadonlyMap<string, Version>): object {
    const latest = [...versions.keys()].sort(byVersion).at(-1);
    return {
      name,
      'dist-tags': { latest },
      versions: Object.fromEntries(
        [...versions].map(([version, { manifest }]) => [
          version,
          { ...manifest, dist: { tarball: `${this.url}/${name}/-/${version}.tgz` } },
        ]),
      ),
    };
  }

  #search(query: URLSearchParams): object {
    const words = (query.get('text') ?? '').split(/\s+/).filter((word) => word !== '');
    const found = [...this.#published.values()].flatMap((versions) => {
      const { manifest } = [...versions.values()].at(-1)!;
      const keywords = Array.isArray(manifest['keywords']) ? (manifest['keywords'] as string[]) : [];
      const text = `${manifest.name} ${String(manifest['description'])}`.toLowerCase();
      const fits = words.every((word) =>
        word.startsWith('keywords:') ? keywords.includes(word.slice(9)) : text.includes(word.toLowerCase()),
      );
      const { name, version, description } = manifest;
      const rest = { date: new Date(0).toISOString(), links: {}, maintainers: [], publisher: { username: 'nobody' } };
      return fits ? [{ package: { name, version, description, keywords, ...rest } }] : [];
    });
    return { objects: found, total: found.length };
  }
}

/** What this checkout has installed, by name and version. Our own packages are links: they are no part of it. */
function installed(): ReadonlyMap<string, Map<string, Version>> {
  const { packages } = JSON.parse(readFileSync(join(root, 'node_modules/.package-lock.json'), 'utf8')) as {
    packages: Record<string, { readonly link?: boolean }>;
  };
  const all = new Map<string, Map<string, Version>>();
  for (const [path, { link }] of Object.entries(packages)) {
    const file = join(root, path, 'package.json');
    if (link || !path.includes('node_modules/') || !existsSync(file)) continue;
    const manifest = JSON.parse(readFileSync(file, 'utf8')) as Manifest;
    const versions = all.get(manifest.name) ?? new Map<string, Version>();
    versions.set(manifest.version, { manifest, source: join(root, path) });
    all.set(manifest.name, versions);
  }
  // A peer that may be missing, and that nobody has, would be looked for in vain.
  for (const versions of all.values()) {
    for (const { manifest } of versions.values()) {
      const peers = manifest['peerDependencies'] as Record<string, string> | undefined;
      const meta = manifest['peerDependenciesMeta'] as Record<string, { optional?: boolean }> | undefined;
      for (const name of Object.keys(peers ?? {})) if (meta?.[name]?.optional && !all.has(name)) delete peers![name];
    }
  }
  return all;
}

function byVersion(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split(/[.-]/).map(Number));
  for (let i = 0; i < 3; i++) {
    const difference = (left?.[i] ?? 0) - (right?.[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

const blockBytes = 512;

/** A folder as a package: without the packages inside it. */
function pack(folder: string): Buffer {
  const parts: Buffer[] = [];
  const add = (name: string, bytes: Buffer, mode: number, type: string): void => {
    if (Buffer.byteLength(name) > 99) {
      const record = ` path=${name}\n`;
      let length = Buffer.byteLength(record) + 2;
      while (`${length}${record}`.length !== length) length = `${length}${record}`.length;
      parts.push(...entry('PaxHeader', Buffer.from(`${length}${record}`), 0o644, 'x'));
    }
    parts.push(...entry(name.slice(-99), bytes, mode, type));
  };
  const walk = (path: string): void => {
    for (const name of readdirSync(join(folder, path)).sort()) {
      const inside = path === '' ? name : `${path}/${name}`;
      const status = lstatSync(join(folder, inside));
      if (status.isDirectory()) {
        if (name !== 'node_modules') walk(inside);
      } else if (status.isFile()) {
        add(`package/${inside}`, readFileSync(join(folder, inside)), status.mode & 0o111 ? 0o755 : 0o644, '0');
      }
    }
  };
  walk('');
  return gzipSync(Buffer.concat([...parts, Buffer.alloc(2 * blockBytes)]), { level: 1 });
}

function entry(name: string, bytes: Buffer, mode: number, type: string): Buffer[] {
  const header = Buffer.alloc(blockBytes);
  header.write(name, 0, 100);
  const octal = (value: number, at: number, length: number): void =>
    void header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, at, length);
  octal(mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(bytes.length, 124, 12);
  octal(0, 136, 12);
  header.write('        ', 148, 8);
  header.write(type, 156, 1);
  header.write('ustar\u000000', 257, 8, 'latin1');
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  header.write(' ', 155, 1);
  return [header, bytes, Buffer.alloc((blockBytes - (bytes.length % blockBytes)) % blockBytes)];
}

/** The package.json of a packed package. */
function manifestOf(tarball: Buffer): Manifest {
  const bytes = gunzipSync(tarball);
  for (let at = 0; at + blockBytes <= bytes.length;) {
    const name = bytes.toString('utf8', at, at + 100).replace(/\0.*$/s, '');
    const size = Number.parseInt(bytes.toString('latin1', at + 124, at + 136), 8) || 0;
    const start = at + blockBytes;
    if (name === 'package/package.json') return JSON.parse(bytes.toString('utf8', start, start + size)) as Manifest;
    at = start + Math.ceil(size / blockBytes) * blockBytes;
  }
  throw new Error('The package has no package.json');
}
