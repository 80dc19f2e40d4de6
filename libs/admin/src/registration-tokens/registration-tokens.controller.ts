import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type Infer, type InferQuery, json, JsonBody, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
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

const usesAllowed = json.optional(
  'How often it may be used; `null` for ever.',
  json.nullable(json.integer({ minimum: 0, maximum: 2_147_483_647 })),
);
const expiryTime = json.optional(
  'When it ends, ms since the epoch; `null` for never.',
  json.nullable(json.integer({ maximum: Number.MAX_SAFE_INTEGER })),
);
const newTokenBody = json.object({
  token: json.optional(
    'The token; it is drawn unless given.',
    json.string({ pattern: `^[A-Za-z0-9._~-]{1,${longestToken}}$` }),
  ),
  length: json.optional(
    `How long a drawn token is; ${defaultLength} characters unless given.`,
    json.integer({ minimum: 1, maximum: longestToken }),
  ),
  uses_allowed: usesAllowed,
  expiry_time: expiryTime,
});
const changeBody = json.object({ uses_allowed: usesAllowed, expiry_time: expiryTime });
const refusing = { wrongType: 'M_INVALID_PARAM' } as const;

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
  async create(@JsonBody(newTokenBody, refusing) body: Infer<typeof newTokenBody>): Promise<object> {
    const { token: given, length = defaultLength } = body;
    const usesAllowed = body.uses_allowed ?? undefined;
    const expiryMs = this.#notPast(body.expiry_time) ?? undefined;
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
  async change(
    @Param('token') token: string,
    @JsonBody(changeBody, refusing) body: Infer<typeof changeBody>,
  ): Promise<object> {
    // `null` takes a limit away; without a word it stays.
    const { uses_allowed: usesAllowed } = body;
    const expiryMs = this.#notPast(body.expiry_time);
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

  #notPast(expiryMs: number | null | undefined): number | null | undefined {
    if (typeof expiryMs === 'number' && expiryMs < this.clock.nowMs())
      throw MatrixError.invalidParam("'expiry_time' must not be in the past");
    return expiryMs;
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
