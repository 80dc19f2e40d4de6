import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type InferQuery, JsonBody, param, Query, queryOf } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Ids } from '@rookery/platform';
import {
  deleteRegistrationToken,
  findRegistrationToken,
  insertRegistrationToken,
  isUsable,
  listRegistrationTokens,
  type RegistrationToken,
  updateRegistrationToken,
} from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

const longestToken = 64;
const defaultLength = 16;
const alphabet = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-';
/** How often a token is drawn anew when there is one like it already: with a length of one, that happens. */
const attempts = 10;

const listQuery = queryOf({
  valid: param.boolean('Only tokens that may be used now, or that may not.'),
});

/** Tokens that let people register. */
@Controller()
@AdminAccess()
export class RegistrationTokensController {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
  ) {}

  /** GET /_synapse/admin/v1/registration_tokens */
  @Get(admin('v1', '/registration_tokens'))
  async list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<object> {
    const { valid } = query;
    const nowMs = this.clock.nowMs();
    const all = await listRegistrationTokens(this.database);
    const wanted = valid === undefined ? all : all.filter((token) => isUsable(token, nowMs) === valid);
    return { registration_tokens: wanted.map(toWire) };
  }

  /** POST /_synapse/admin/v1/registration_tokens/new */
  @Post(admin('v1', '/registration_tokens/new'))
  async create(@JsonBody() body: JsonObject): Promise<object> {
    const given = tokenIn(body);
    const length = lengthIn(body);
    const usesAllowed = usesIn(body) ?? undefined;
    const expiryMs = this.#expiryIn(body) ?? undefined;
    for (let attempt = 0; attempt < (given === undefined ? attempts : 1); attempt++) {
      const token = given ?? this.#draw(length);
      const isNew = await this.database.write((tx) => insertRegistrationToken(tx, token, usesAllowed, expiryMs), {
        name: 'registration_token_new',
      });
      if (isNew) return toWire({ token, usesAllowed, pending: 0, completed: 0, expiryMs });
    }
    throw MatrixError.invalidParam('There is such a token already');
  }

  /** GET /_synapse/admin/v1/registration_tokens/{token} */
  @Get(admin('v1', '/registration_tokens/:token'))
  async get(@Param('token') token: string): Promise<object> {
    const found = isStorable(token) ? await findRegistrationToken(this.database, token) : undefined;
    if (found === undefined) throw unknown();
    return toWire(found);
  }

  /** PUT /_synapse/admin/v1/registration_tokens/{token} */
  @Put(admin('v1', '/registration_tokens/:token'))
  async change(@Param('token') token: string, @JsonBody() body: JsonObject): Promise<object> {
    const usesAllowed = usesIn(body);
    const expiryMs = this.#expiryIn(body);
    const change = { ...(usesAllowed !== undefined && { usesAllowed }), ...(expiryMs !== undefined && { expiryMs }) };
    if (isStorable(token))
      await this.database.write((tx) => updateRegistrationToken(tx, token, change), {
        name: 'registration_token_change',
      });
    return this.get(token);
  }

  /** DELETE /_synapse/admin/v1/registration_tokens/{token} */
  @Delete(admin('v1', '/registration_tokens/:token'))
  async delete(@Param('token') token: string): Promise<object> {
    const deleted =
      isStorable(token) &&
      (await this.database.write((tx) => deleteRegistrationToken(tx, token), { name: 'registration_token_delete' }));
    if (!deleted) throw unknown();
    return {};
  }

  #draw(length: number): string {
    return Array.from({ length }, () => alphabet[this.ids.integer(alphabet.length)]).join('');
  }

  /** `null` takes the end away; `undefined` when nothing is said. */
  #expiryIn(body: JsonObject): number | null | undefined {
    const { expiry_time: value } = body;
    if (value === undefined || value === null) return value;
    if (typeof value !== 'number' || !Number.isSafeInteger(value))
      throw MatrixError.invalidParam("'expiry_time' must be an integer or null");
    if (value < this.clock.nowMs()) throw MatrixError.invalidParam("'expiry_time' must not be in the past");
    return value;
  }
}

const unknown = (): MatrixError => MatrixError.notFound('There is no such registration token');

const isStorable = (token: string): boolean => !token.includes('\0');

const toWire = (token: RegistrationToken): object => ({
  token: token.token,
  uses_allowed: token.usesAllowed ?? null,
  pending: token.pending,
  completed: token.completed,
  expiry_time: token.expiryMs ?? null,
});

function tokenIn({ token }: JsonObject): string | undefined {
  if (token === undefined) return undefined;
  if (typeof token !== 'string' || token.length > longestToken || !/^[A-Za-z0-9._~-]+$/.test(token))
    throw MatrixError.invalidParam("'token' must have 1 to 64 of the characters A-Z, a-z, 0-9, '.', '_', '~' and '-'");
  return token;
}

function lengthIn({ length = defaultLength }: JsonObject): number {
  if (typeof length !== 'number' || !Number.isInteger(length) || length < 1 || length > longestToken)
    throw MatrixError.invalidParam(`'length' must be an integer from 1 to ${longestToken}`);
  return length;
}

/** `null` takes the limit away; `undefined` when nothing is said. */
function usesIn({ uses_allowed: value }: JsonObject): number | null | undefined {
  if (value === undefined || value === null) return value;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > 2_147_483_647)
    throw MatrixError.invalidParam("'uses_allowed' must be an integer that is not negative, or null");
  return value;
}
