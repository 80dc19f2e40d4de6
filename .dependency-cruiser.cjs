// The layers of the house (docs/architecture.md), lowest first: imports point up this list.
const layers = [
  ['matrix-types', 'events', 'state-res', 'push-rules', 'module-api'], // L0 protocol: no framework, no I/O
  ['platform', 'database', 'replication', 'http', 'module-host', 'templates'], // L1 platform: no Matrix rules
  ['federation-client'], // L2 signed requests, discovery, keys
  ['users'], // L3 identity
  ['rooms', 'media', 'sso'], // L4 core domains
  ['ephemeral', 'e2ee', 'push', 'search'], // L5 followers of rooms
  ['sync', 'federation', 'appservices', 'module-services'], // L6 stream readers and outer edges
  ['admin'], // L7 admin API over every domain
]; // L8 apps: composition only

// Sanctioned edges inside a layer.
const within = {
  events: ['matrix-types'],
  'state-res': ['matrix-types', 'events'],
  'push-rules': ['matrix-types'],
  'module-api': ['matrix-types'],
  database: ['platform'],
  replication: ['platform', 'database'],
  http: ['platform'],
  'module-host': ['platform'],
  templates: ['platform', 'database'], // the mail queue
};

// What of rooms stores and decides: plain data, tables, state, a room in memory, the way of an event; and what it offers upwards.
const roomsBelow = ['model', 'store', 'state', 'room', 'pipeline', 'hooks', 'ports', 'remote-rooms'];

const lib = (names) => `^libs/(${names.join('|')})/`;
const spec = '\\.(spec|fixture)\\.ts$'; // not part of what is built
const rule = (name, from, to) => ({ name, severity: 'error', from, to });

module.exports = {
  forbidden: [
    ...layers.flatMap((names, i) =>
      names.map((n) =>
        rule(
          `layer:${n}`,
          { path: lib([n]), pathNot: spec },
          { path: '^(libs|apps)/', pathNot: lib([n, ...(within[n] ?? []), ...layers.slice(0, i).flat()]) },
        ),
      ),
    ),
    rule('no-cycles', {}, { circular: true }),
    // Inside rooms: what stores and decides, below what people do. Rings of folders, in any lib, are found by tools/folders.mjs.
    rule(
      'rooms-store-and-decide-below',
      { path: `^libs/rooms/src/(${roomsBelow.join('|')})(/|\\.ts$)`, pathNot: spec },
      { path: '^libs/rooms/src/', pathNot: `^libs/rooms/src/(${roomsBelow.join('|')})(/|\\.ts$)` },
    ),
    // Controllers lie in `http` and nothing rests upon them; the admin API is nothing else, and its `http` what its controllers share.
    rule(
      'http-on-top',
      {
        path: '^(libs|apps)/([^/]+)/src/',
        pathNot: `^(libs|apps)/[^/]+/src/(http/|index\\.ts$|[^/]+\\.module\\.ts$)|^libs/admin/|${spec}`,
      },
      { path: '^$1/$2/src/http/' },
    ),
    rule(
      'front-door-only',
      { path: '^(libs|apps|test)/([^/]+)/' },
      { path: '^libs/([^/]+)/src/(?!index\\.ts$)', pathNot: '^libs/$2/|^libs/testing/src/internal\\.ts$' },
    ),
    // Authors of modules, for whom the tests' lib is published, see no framework: what shows one is `internal`.
    rule(
      'testing-shows-no-framework',
      { path: '^libs/testing/src/', pathNot: '^libs/testing/src/(test-module|internal)\\.ts$' },
      { path: '^libs/testing/src/(test-module|internal)\\.ts$|node_modules/(@nestjs|typeorm|fastify)/' },
    ),
    rule(
      'protocol-is-pure',
      { path: lib(layers[0]), pathNot: spec },
      { path: 'node_modules/(@nestjs|typeorm|pg|better-sqlite3|fastify|ioredis|rxjs|reflect-metadata)/' },
    ),
    rule(
      'drivers-behind-the-database',
      { path: '^(libs|apps)/', pathNot: `${spec}|^libs/(database|testing|typeorm)/` },
      { path: 'node_modules/(typeorm|pg|better-sqlite3)/' },
    ),
    rule(
      'examples-see-only-the-module-api',
      { path: '^modules-examples/' },
      {
        path: '^(libs|apps)/',
        pathNot: '^libs/(module-api|matrix-types|passport|nest|typeorm|testing)/src/index\\.ts$',
      },
    ),
    rule(
      'bridges-see-only-the-module-api',
      { path: '^libs/(passport|nest|typeorm)/', pathNot: spec },
      { path: '^(libs|apps)/', pathNot: '^libs/($1/|(module-api|matrix-types)/src/index\\.ts$)' },
    ),
    // Who does not use them pays for them neither with memory nor with time.
    rule(
      'bridges-are-for-modules',
      { path: '^(libs|apps)/', pathNot: `${spec}|^libs/(passport|nest|typeorm)/` },
      { path: '^libs/(passport|nest|typeorm)/' },
    ),
    rule(
      'testing-is-for-tests',
      { path: '^(libs|apps)/', pathNot: `${spec}|^libs/testing/` },
      { path: '^libs/testing/' },
    ),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '(^|/)dist/' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.check.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['@rookery/source', 'import', 'types', 'default'],
    },
  },
};
