import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { TestHomeserver } from '@rookery/testing';
import { Dice } from './dice.js';
import { type Attempt, hostileRequest, sweepRequests } from './requests.js';
import type { Route } from './routes.js';
import { Wire, type WireAnswer, type WireRequest } from './wire.js';
import { makeWorld, type World } from './world.js';

/** Longest time that an answer may take. */
const patienceMs = 5_000;
/** How long a request that may wait for news is listened to. */
const waitingPatienceMs = 300;
/** Longest time that one request may keep the process from serving others. */
const longestBlockMs = 200;
/** Requests before the users and their room are replaced by fresh ones. */
const requestsPerWorld = 150;

const allowedRefusals = new Set([400, 401, 403, 404, 405, 409, 413, 414, 429, 501]);

/** Endpoints that answer with pages for browsers. */
const pages = /\/fallback\/web|\/submit_token|\/account_validity\/renew|\/consent|\/sso\/redirect|\/cas\//;

/** What a run was like. */
export interface Report {
  readonly requests: number;
  /** How often each status came. */
  readonly statuses: ReadonlyMap<number, number>;
  /** What must not be, each with the seed that makes it again. */
  readonly offenses: readonly string[];
}

export interface FuzzOptions {
  readonly homeserver: TestHomeserver;
  readonly routes: readonly Route[];
  /** The same seed makes the same requests. */
  readonly seed: string;
  /** How often every route is called. */
  readonly rounds: number;
  /** Which part of the requests with a single fault each is made, 1 for all. */
  readonly sweepShare: number;
  /** It ends early after this time; one round is always made. */
  readonly limitMs: number;
  /** Told of each offense at once. */
  readonly onOffense?: (offense: string) => void;
  /** Told after each round. */
  readonly afterRound?: (round: number, world: World) => Promise<void>;
}

/** Calls every route with hostile input and judges the answers. */
export async function fuzz(options: FuzzOptions): Promise<Report> {
  const { homeserver, routes, seed, rounds, sweepShare, limitMs } = options;
  const wire = new Wire(homeserver.baseUrl);
  const delays = monitorEventLoopDelay({ resolution: 5 });
  const statuses = new Map<number, number>();
  const offenses: string[] = [];
  const startMs = performance.now();
  let requests = 0;
  let world = await makeWorld(homeserver);

  const sendOnce = async (request: WireRequest, mayWait: boolean): Promise<{ answer: WireAnswer; blockMs: number }> => {
    delays.reset();
    delays.enable();
    const answer = await wire.send(request, mayWait ? waitingPatienceMs : patienceMs);
    delays.disable();
    return { answer, blockMs: delays.max / 1e6 };
  };

  const attemptOne = async (id: string, route: Route, { request, mayWait, isRemote }: Attempt): Promise<void> => {
    requests += 1;
    let { answer, blockMs } = await sendOnce(request, mayWait);
    // Other programs on the machine block, too: only what blocks each time counts.
    for (let again = 0; again < 2 && blockMs > longestBlockMs; again++) {
      const repeated = await sendOnce(request, mayWait);
      blockMs = Math.min(blockMs, repeated.blockMs);
      answer = answer.status === undefined ? repeated.answer : answer;
    }
    if (answer.status !== undefined) statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
    const problems = wrongWith(route, request, answer, mayWait, isRemote);
    if (blockMs > longestBlockMs) problems.push(`blocked for ${Math.round(blockMs)} ms`);
    for (const problem of problems) {
      const offense = describeOffense(id, request, problem, answer);
      offenses.push(offense);
      options.onOffense?.(offense);
    }
    const isStale = requests % requestsPerWorld === 0;
    if (isStale || (await isSignedOut(answer, request, world, homeserver))) world = await makeWorld(homeserver);
  };
  const isLate = (): boolean => performance.now() - startMs > limitMs;

  for (let round = 0; round < rounds && (round === 0 || !isLate()); round++) {
    for (const route of routes) {
      const id = `${seed}/${round}/${route.name}`;
      await attemptOne(id, route, hostileRequest(new Dice(id), route, world));
    }
    await options.afterRound?.(round, world);
  }
  for (const route of routes) {
    const chances = new Dice(`${seed}/sweep/${route.name}`);
    for (let number = 0, more = true; more && !isLate();) {
      more = false;
      const before = world;
      for (const attempt of drop(number, sweepRequests(new Dice(route.name), route, world))) {
        number += 1;
        if (chances.chance(sweepShare)) await attemptOne(`${seed}/sweep ${number}/${route.name}`, route, attempt);
        // Go on with the ids and tokens of the new users.
        if ((more = world !== before) || isLate()) break;
      }
    }
  }
  await options.afterRound?.(rounds, world);
  wire.close();
  return { requests, statuses, offenses };
}

function* drop<T>(count: number, items: Iterable<T>): Generator<T> {
  let left = count;
  for (const item of items) if (left-- <= 0) yield item;
}

/** Whether the requests' own user is no longer known: it logged out, or was deactivated. */
async function isSignedOut(
  { status }: WireAnswer,
  { method }: WireRequest,
  { user }: World,
  homeserver: TestHomeserver,
): Promise<boolean> {
  if (status === 401 || (status === 200 && method !== 'GET')) {
    const { status: own } = await homeserver.request('GET', '/account/whoami', undefined, user.accessToken);
    return own !== 200;
  }
  return false;
}

/** What is wrong with an answer. */
function wrongWith(
  route: Route,
  { method }: WireRequest,
  { status, headers, text, error }: WireAnswer,
  mayWait: boolean,
  isRemote: boolean,
): string[] {
  if (status === undefined) {
    if (error !== undefined) return [`no answer: ${error}`];
    return mayWait ? [] : [`no answer within ${patienceMs} ms`];
  }
  const problems: string[] = [];
  const unreachable = isRemote && (status === 502 || status === 504);
  if (status >= 400 && !allowedRefusals.has(status) && !unreachable) problems.push(`status ${status}`);
  if (headers['access-control-allow-origin'] !== '*') problems.push('no CORS headers');
  if (status === 204 || method === 'HEAD' || method === 'OPTIONS' || (status >= 300 && status < 400)) return problems;
  const type = String(headers['content-type'] ?? '');
  if (type.startsWith('text/html') && pages.test(route.name)) return problems;
  if (!type.startsWith('application/json')) return [...problems, `content type '${type}'`];
  try {
    const body = JSON.parse(text) as { errcode?: unknown; error?: unknown };
    const isUia = status === 401 && Array.isArray((body as { flows?: unknown }).flows);
    if (status >= 400 && !isUia && (typeof body.errcode !== 'string' || typeof body.error !== 'string'))
      problems.push('no errcode');
    if (text.length > 1_000_000) problems.push(`an answer of ${text.length} characters`);
  } catch {
    problems.push('a body that is no JSON');
  }
  return problems;
}

const shown = (text: string, length: number): string =>
  text.length <= length ? text : `${text.slice(0, length)}… (${text.length})`;

function describeOffense(id: string, request: WireRequest, problem: string, { text }: WireAnswer): string {
  const body = request.body === undefined ? '' : ` ${shown(JSON.stringify(String(request.body)), 600)}`;
  return `[${id}] ${problem}: ${request.method} ${shown(request.target, 400)}${body} → ${shown(text, 300)}`;
}
