import { compileSchema } from './json-body.js';
import { type Infer, json } from './json-schema.js';

const body = json.object({
  user_id: json.required('Who it is.', json.string({ maxLength: 5 })),
  reason: json.optional('Why.', json.nullable(json.string())),
  action: json.optional('What is done.', json.enum('ban', 'kick')),
  rooms: json.optional(
    'Where.',
    json.array(json.object({ id: json.required('Which room.', json.string()) }), { maxItems: 2 }),
  ),
  limits: json.optional('How much.', json.record(json.integer({ minimum: 0 }))),
  more: json.optional('What else.', json.anyOf(json.boolean(), json.anyObject())),
});
type Body = Infer<typeof body>;

/** What the types are, said once by hand: this does not compile when one of them is wrong. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const typesAreThose: Same<
  Body,
  {
    readonly user_id: string;
    readonly reason?: string | null;
    readonly action?: 'ban' | 'kick';
    readonly rooms?: readonly { readonly id: string }[];
    readonly limits?: Readonly<Record<string, number>>;
    readonly more?: boolean | { [key: string]: unknown };
  }
> = true;

describe('schemas', () => {
  it('are the JSON Schema that they say, and nothing else', () => {
    expect(typesAreThose).toBe(true);
    expect(JSON.parse(JSON.stringify(body))).toEqual({
      type: 'object',
      required: ['user_id'],
      properties: {
        user_id: { type: 'string', maxLength: 5, description: 'Who it is.' },
        reason: { type: ['string', 'null'], description: 'Why.' },
        action: { enum: ['ban', 'kick'], description: 'What is done.' },
        rooms: {
          type: 'array',
          maxItems: 2,
          items: {
            type: 'object',
            required: ['id'],
            properties: { id: { type: 'string', description: 'Which room.' } },
          },
          description: 'Where.',
        },
        limits: { type: 'object', additionalProperties: { type: 'integer', minimum: 0 }, description: 'How much.' },
        more: { anyOf: [{ type: 'boolean' }, { type: 'object' }], description: 'What else.' },
      },
    });
  });

  it('give back what they let pass, typed', () => {
    const check = compileSchema(body);
    const passed: Body = check({ user_id: '@a:b', reason: null, rooms: [{ id: '!r' }], other: 1 });
    expect(passed).toEqual({ user_id: '@a:b', reason: null, rooms: [{ id: '!r' }], other: 1 });
    expect(check({ user_id: '@a:b', action: null })).toEqual({ user_id: '@a:b' });
  });

  it.each([
    [{}, 'M_MISSING_PARAM'],
    [{ user_id: 5 }, 'M_BAD_JSON'],
    [{ user_id: '@a:b:80' }, 'M_INVALID_PARAM'],
    [{ user_id: '@a:b', action: 'wave' }, 'M_INVALID_PARAM'],
    [{ user_id: '@a:b', rooms: [{}] }, 'M_BAD_JSON'],
    [{ user_id: '@a:b', rooms: [{ id: '' }, { id: '' }, { id: '' }] }, 'M_INVALID_PARAM'],
    [{ user_id: '@a:b', limits: { a: -1 } }, 'M_INVALID_PARAM'],
    ['text', 'M_BAD_JSON'],
  ])('refuse %j with %s', (value, errcode) => {
    expect(() => compileSchema(body)(value)).toThrow(expect.objectContaining({ errcode }));
  });
});
