import { readFileSync, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';
import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import { parse } from 'yaml';
import { specificationFolder } from './specification.js';

/**
 * Holds every request and response of the end-to-end tests against the Matrix OpenAPI data. Where there is none
 * ({@link specificationFolder}), nothing is checked.
 */
export interface OpenApiValidator {
  /** How many endpoints are known; 0 when there is no data. */
  readonly endpoints: number;
  /** What is wrong with an exchange; empty when it is right or not described. */
  check(exchange: Exchange): string[];
}

export interface Exchange {
  readonly method: string;
  /** Path without query. */
  readonly path: string;
  readonly requestBody: unknown;
  readonly status: number;
  readonly responseBody: unknown;
}

interface Endpoint {
  readonly pattern: RegExp;
  readonly literalLength: number;
  readonly name: string;
  readonly request: ValidateFunction | undefined;
  readonly responses: ReadonlyMap<string, ValidateFunction>;
}

type Node = { [key: string]: unknown };

const base = 'https://spec.invalid';

function yamlFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === 'examples' ? [] : yamlFiles(path);
    return entry.name.endsWith('.yaml') ? [path] : [];
  });
}

const pointer = (...keys: string[]): string =>
  keys.map((key) => '/' + encodeURIComponent(key.replaceAll('~', '~0').replaceAll('/', '~1'))).join('');

let loaded: OpenApiValidator | undefined;

/** The validator; loads the data on first use (about two seconds). */
export function openApiValidator(): OpenApiValidator {
  loaded ??= load();
  return loaded;
}

function load(): OpenApiValidator {
  const folder = specificationFolder();
  if (folder === undefined) return { endpoints: 0, check: () => [] };
  const ajv = new Ajv2020({
    strict: false,
    validateSchema: false,
    validateFormats: false,
    allErrors: true,
    verbose: true,
  });
  const documents = new Map<string, Node>();
  for (const file of yamlFiles(folder)) {
    const path = relative(folder, file).replaceAll('\\', '/').replaceAll('$', '%24');
    const id = `${base}/${path}`;
    const document = parse(readFileSync(file, 'utf8')) as Node;
    if (typeof document !== 'object' || document === null) continue;
    if (/\/(?:joins|knocks|invites|leaving|invite_event)/.test(path)) freeFromOrigin(document);
    if (/\/old_sync\.yaml$/.test(path)) allowEphemeralEvents(document);
    documents.set(path, document);
    ajv.addSchema({ ...document, $id: id });
  }
  const byMethod = new Map<string, Endpoint[]>();
  let count = 0;
  for (const [path, document] of documents) {
    if (!/^api\/(?:client|server)-server\/[^/]+\.yaml$/.test(path) || typeof document['paths'] !== 'object') continue;
    const servers = document['servers'] as { variables?: { basePath?: { default?: string } } }[] | undefined;
    const basePath = servers?.[0]?.variables?.basePath?.default ?? '';
    for (const [template, operations] of Object.entries(document['paths'] as Record<string, Node>)) {
      for (const [method, operation] of Object.entries(operations as Record<string, Node>)) {
        if (!['get', 'put', 'post', 'delete'].includes(method)) continue;
        const schemaAt = (...keys: string[]): ValidateFunction =>
          ajv.compile({ $ref: `${base}/${path}#${pointer('paths', template, method, ...keys)}` });
        // A path that stands twice ends in a space the second time.
        const full = (basePath + template).trim();
        const responses = new Map<string, ValidateFunction>();
        for (const [status, response] of Object.entries((operation['responses'] ?? {}) as Record<string, Node>)) {
          const content = response['content'] as Record<string, Node> | undefined;
          if (content?.['application/json']?.['schema'] !== undefined) {
            responses.set(status, schemaAt('responses', status, 'content', 'application/json', 'schema'));
          }
        }
        const body = (operation['requestBody'] as Node | undefined)?.['content'] as Record<string, Node> | undefined;
        const endpoint: Endpoint = {
          name: `${method.toUpperCase()} ${full}`,
          pattern: new RegExp(`^${full.replace(/[.*+?^$()|[\]\\]/g, '\\$&').replace(/\{[^}]+\}/g, '[^/]+')}/?$`),
          literalLength: full.replace(/\{[^}]+\}/g, '').length,
          request:
            body?.['application/json']?.['schema'] === undefined
              ? undefined
              : schemaAt('requestBody', 'content', 'application/json', 'schema'),
          responses,
        };
        const list = byMethod.get(method.toUpperCase()) ?? [];
        list.push(endpoint);
        byMethod.set(method.toUpperCase(), list);
        count += 1;
      }
    }
  }
  // Literal paths win over templates that would match them too.
  for (const list of byMethod.values()) list.sort((a, b) => b.literalLength - a.literalLength);
  return {
    endpoints: count,
    check(exchange) {
      const path = exchange.path.replace('/_matrix/client/r0/', '/_matrix/client/v3/');
      const matching = (byMethod.get(exchange.method) ?? []).filter((candidate) => candidate.pattern.test(path));
      // A few operations are described twice, for different bodies: one of them must fit.
      const best = matching.filter((candidate) => candidate.literalLength === matching[0]?.literalLength);
      const problems = best.map((endpoint) => problemsOf(endpoint, exchange));
      return problems.find((list) => list.length === 0) ?? problems[0] ?? [];
    },
  };
}

/** Events of members had an `origin` once. No room version knows it, and servers have long left it out: none is asked for. */
function freeFromOrigin(node: unknown): void {
  if (typeof node !== 'object' || node === null) return;
  const { required } = node as Node;
  if (Array.isArray(required)) (node as Node)['required'] = required.filter((name) => name !== 'origin');
  for (const child of Object.values(node)) freeFromOrigin(child);
}

/**
 * `GET /events` is described as telling events of rooms only, though `/initialSync` beside it hands out presence and receipts
 * with a token to go on from. Servers tell their changes, typing and account data here as well: a `type` and a `content` do.
 */
function allowEphemeralEvents(document: Node): void {
  const paths = document['paths'] as Record<string, { get: { responses: Record<string, Node> } }>;
  const answer = paths['/events']?.get.responses['200'] as {
    content: Record<string, { schema: { properties: { chunk: Node } } }>;
  };
  const chunk = answer.content['application/json']?.schema.properties.chunk as { items: Node };
  const edu = { required: ['type', 'content'], not: { required: ['event_id'] } };
  chunk.items = { anyOf: [chunk.items, edu] };
}

/** What clients in use expect to be there and be `null`, where the data knows it as absent only. */
const nullInUse: ReadonlySet<string | undefined> = new Set([
  'avatar_url',
  'display_name',
  'last_seen_ip',
  'last_seen_ts',
  'next_token',
]);

const isNullInUse = ({ keyword, data, instancePath }: ErrorObject): boolean =>
  keyword === 'type' && data === null && nullInUse.has(instancePath.split('/').at(-1));

function problemsOf(endpoint: Endpoint, exchange: Exchange): string[] {
  const problems: string[] = [];
  const report = (what: string, validate: ValidateFunction, counts = (_: ErrorObject): boolean => true): void => {
    for (const error of (validate.errors ?? []).filter(counts)) {
      problems.push(`${endpoint.name}: ${what}${error.instancePath}: ${error.message ?? 'wrong'}`);
    }
  };
  const isError = exchange.status >= 400;
  // A request that was refused may well be wrong; one that was accepted may not.
  if (!isError && endpoint.request !== undefined && exchange.requestBody !== undefined) {
    // Typed clients write null for what they do not have.
    const counts = ({ keyword, data }: ErrorObject): boolean => keyword !== 'type' || data !== null;
    if (!endpoint.request(exchange.requestBody)) report('request', endpoint.request, counts);
  }
  const response = endpoint.responses.get(String(exchange.status));
  if (response !== undefined && !response(exchange.responseBody)) {
    report(`${exchange.status} response`, response, (error) => !isNullInUse(error));
  }
  if (isError && response === undefined) {
    const body = exchange.responseBody as { errcode?: unknown } | undefined;
    if (typeof body?.errcode !== 'string') problems.push(`${endpoint.name}: ${exchange.status} without errcode`);
  }
  return problems;
}

/** An event that is left to be sent later (MSC4140) is answered otherwise than the specification knows. */
const isToBeSentLater = (url: URL): boolean => url.searchParams.has('org.matrix.msc4140.delay');

/** `fetch` that throws when an exchange with clients or other servers contradicts the specification. */
export async function validatedFetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const response = await fetch(input, init);
  const url = new URL(input instanceof Request ? input.url : input);
  const validator = openApiValidator();
  if (validator.endpoints === 0 || !/^\/_matrix\/(?:client|federation|key)\//.test(url.pathname)) return response;
  if (isToBeSentLater(url)) return response;
  if (!(response.headers.get('content-type') ?? '').startsWith('application/json')) return response;
  const body = (await response.clone().json()) as unknown;
  const sent = typeof init?.body === 'string' && init.body !== '' ? (JSON.parse(init.body) as unknown) : undefined;
  const problems = validator.check({
    method: (init?.method ?? 'GET').toUpperCase(),
    path: url.pathname,
    requestBody: sent,
    status: response.status,
    responseBody: body,
  });
  if (problems.length > 0)
    throw new Error(`Not as specified:\n  ${problems.join('\n  ')}\n${JSON.stringify(body).slice(0, 2000)}`);
  return response;
}
