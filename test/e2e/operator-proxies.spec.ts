import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { exampleIn, pageText } from '../support/operators.js';
import { type Route, routesOf } from './hostile/routes.js';

const page = pageText('reverse-proxy.md');

/** What a pattern captures in an example. */
function named(language: string, pattern: RegExp): string {
  const [, found] = pattern.exec(exampleIn('reverse-proxy.md', language)) ?? [];
  if (found === undefined) throw new Error(`${language}: nothing like ${pattern.source}`);
  return found;
}

const caddyPaths = named('caddyfile', /@rookery path (.*)$/m).split(' ');
const haproxyPaths = named('haproxy', /acl rookery path_beg (.*)$/m).split(' ');
const nginx = new RegExp(named('nginx', /location ~ (\S+) \{/));
const apache = new RegExp(named('apache', /ProxyPassMatch "(.*?)" /));

/** Whether a proxy forwards a path, as its example says. */
const proxies: Readonly<Record<string, (path: string) => boolean>> = {
  nginx: (path) => nginx.test(path),
  Caddy: (path) =>
    caddyPaths.some((wanted) => (wanted.endsWith('*') ? path.startsWith(wanted.slice(0, -1)) : path === wanted)),
  Apache: (path) => apache.test(path),
  HAProxy: (path) => haproxyPaths.some((wanted) => path.startsWith(wanted)),
};

/** Not for everybody, as the page says of each: administrators, an authentication service, who watches, and what is on the machine. */
const isInner = (path: string): boolean =>
  /^\/(?:$|health$|_synapse\/(?:admin|mas|metrics|replication)(?:\/|$))/.test(path);

describe('the reverse proxies of the operators page', () => {
  let homeserver: TestHomeserver;
  let routes: Route[];
  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database: 'sqlite',
      settings: {
        public_baseurl: 'https://rookery.test/',
        serve_server_wellknown: true,
        email: { smtp_host: '127.0.0.1', smtp_port: 1, notif_from: 'Rookery <rookery@rookery.test>' },
      },
    });
    routes = routesOf(homeserver, ['/']);
  });
  afterAll(() => homeserver?.stop());

  it.each(Object.keys(proxies))('%s forwards every path that the world may ask for, and no other', (name) => {
    const paths = routes
      .flatMap((route) => route.paths)
      .map((path) => path.replaceAll(/:\w+/g, 'x').replace(/\*\w*$/, 'x'));
    expect(paths.length).toBeGreaterThan(300);
    const isForwarded = proxies[name] as (path: string) => boolean;
    expect(paths.filter((path) => !isInner(path) && !isForwarded(path))).toEqual([]);
    expect(paths.filter((path) => isInner(path) && isForwarded(path))).toEqual([]);
  });

  it('and its table name all beginnings of paths that there are', () => {
    const told = [...page.matchAll(/^\| `(\/[^`]*)`/gm)].map(([, path]) => path as string);
    const isTold = (path: string): boolean => told.some((start) => path === start || path.startsWith(`${start}/`));
    const paths = routes.flatMap((route) => route.paths).filter((path) => path !== '/');
    expect(paths.filter((path) => !isTold(path))).toEqual([]);
    // Answered before any route; only where there is an authentication service.
    const elsewhere = ['/health', '/_synapse/mas'];
    for (const start of told.filter((each) => !elsewhere.includes(each)))
      expect({ start, some: paths.some((path) => path.startsWith(start)) }).toMatchObject({ some: true });
  });
});
