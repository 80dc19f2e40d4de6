import { RedirectError, type WebHandler, type WebRequestContext } from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import type { HostServices } from './services.js';
import { ModuleLoadError } from './errors.js';

/** A path of a module, taken apart. */
export interface WebResource {
  readonly module: string;
  readonly path: string;
  readonly segments: readonly string[];
  readonly handler: WebHandler;
}

/** Paths that belong to the server, whatever a module says. */
const reserved = ['/_matrix', '/_synapse/admin', '/_synapse/replication', '/_synapse/metrics', '/health'];
const maxPathLength = 200;
/** A module's answer has to begin within this time. */
const webTimeLimitMs = 60_000;

/** Checks a path and takes it apart. @throws ModuleLoadError */
export function webResource(module: string, path: string, handler: WebHandler): WebResource {
  const problem = (what: string): ModuleLoadError => new ModuleLoadError(module, `registerWebResource: ${what}`);
  if (typeof path !== 'string' || !/^\/[\x21-\x7e]+$/.test(path) || path.length > maxPathLength) {
    throw problem(`${JSON.stringify(path)} is not a path; take one below /_synapse/client/`);
  }
  if (typeof handler !== 'function') throw problem(`the handler of ${path} is not a function`);
  if (reserved.some((prefix) => path === prefix || path.startsWith(`${prefix}/`))) {
    throw problem(`${path} belongs to the server; take one below /_synapse/client/`);
  }
  const segments = path.slice(1).split('/');
  const parameters = segments.filter((segment) => segment.startsWith(':'));
  if (parameters.some((name) => !/^:\w+$/.test(name)) || new Set(parameters).size < parameters.length) {
    throw problem(`the parameters of ${path} need different names of letters, digits and _`);
  }
  if (segments[0]?.startsWith(':') || segments[0] === '*') throw problem(`${path} begins with a parameter`);
  if (segments.some((segment, i) => segment.includes('*') && (segment !== '*' || i < segments.length - 1))) {
    throw problem(`* may only be the last segment of ${path}`);
  }
  return { module, path, segments, handler };
}

/** Whether two paths could stand for one and the same request. */
export const samePath = (a: WebResource, b: WebResource): boolean =>
  a.segments.length === b.segments.length &&
  a.segments.every(
    (segment, i) => segment === b.segments[i] || (segment.startsWith(':') && b.segments[i]?.startsWith(':')),
  );

/** What of a path stands before its first parameter. */
export function webPrefix({ segments }: WebResource): string {
  const variable = segments.findIndex((segment) => segment.startsWith(':') || segment === '*');
  return `/${segments.slice(0, variable < 0 ? segments.length : variable).join('/')}`;
}

/** The resource for a path without query, and its parameters. The first that fits, in the order of registration. */
export function findWebResource(
  resources: readonly WebResource[],
  path: string,
): { readonly resource: WebResource; readonly params: Readonly<Record<string, string>> } | undefined {
  if (resources.length === 0) return undefined;
  const given = path.slice(1).split('/');
  for (const resource of resources) {
    const params = match(resource.segments, given);
    if (params) return { resource, params };
  }
  return undefined;
}

function match(segments: readonly string[], given: readonly string[]): Record<string, string> | undefined {
  const params: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [i, segment] of segments.entries()) {
    if (segment === '*') {
      params['*'] = given.slice(i).join('/');
      return params;
    }
    const part = given[i];
    if (part === undefined) return undefined;
    if (segment.startsWith(':')) {
      const value = decode(part);
      if (!value) return undefined;
      params[segment.slice(1)] = value;
    } else if (segment !== part) {
      return undefined;
    }
  }
  return given.length === segments.length ? params : undefined;
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** Lets a module answer a request. Never rejects: what goes wrong becomes an error answer. */
export async function answerWebRequest(
  services: HostServices,
  resource: WebResource,
  request: Request,
  context: WebRequestContext,
): Promise<Response> {
  const { module, handler, path } = resource;
  const { clock, log } = services;
  let timer = { cancel: (): void => {} };
  try {
    const late = new Promise<never>((_, reject) => {
      const tooLate = (): void => reject(new Error(`No answer within ${webTimeLimitMs} ms`));
      timer = clock.after(webTimeLimitMs, tooLate);
    });
    const response = await Promise.race([Promise.resolve(handler(request, context)), late]);
    if (isResponse(response)) return response;
    throw new Error('The handler gave no Response');
  } catch (error) {
    if (MatrixError.is(error)) return Response.json(error.toBody(), { status: error.status });
    if (RedirectError.is(error)) {
      return new Response(null, { status: error.status, headers: { location: error.location } });
    }
    log.error('A web resource of a module failed', {
      module,
      path,
      requestId: context.requestId,
      err: error,
    });
    return Response.json({ errcode: 'M_UNKNOWN', error: 'A module of this server failed' }, { status: 500 });
  } finally {
    timer.cancel();
  }
}

/** A module may carry another implementation of fetch: its Response counts when it looks like one. */
const isResponse = (value: unknown): value is Response =>
  value instanceof Response ||
  (typeof value === 'object' &&
    value !== null &&
    typeof (value as Response).status === 'number' &&
    typeof (value as Response).arrayBuffer === 'function' &&
    typeof (value as Response).headers?.get === 'function');
