import { SsoError } from './sso-error.js';

/** What a user must have: some value, this one, or one of several. */
export interface AttributeRequirement {
  readonly attribute: string;
  readonly value?: string | undefined;
  readonly one_of?: readonly string[] | undefined;
}

const textsOf = (value: unknown): string[] =>
  (Array.isArray(value) ? value : [value])
    .filter((one) => typeof one === 'string' || typeof one === 'number' || typeof one === 'boolean')
    .map(String);

/**
 * Whether a user has every required attribute; a list has a value when it contains it.
 * @throws SsoError `unauthorised`
 */
export function checkRequirements(
  requirements: readonly AttributeRequirement[],
  attributes: Readonly<Record<string, unknown>>,
): void {
  for (const { attribute, value, one_of: oneOf } of requirements) {
    const present = Object.hasOwn(attributes, attribute) ? attributes[attribute] : undefined;
    const given = textsOf(present);
    const met =
      value !== undefined
        ? given.includes(value)
        : oneOf !== undefined
          ? oneOf.some((one) => given.includes(one))
          : present !== undefined && present !== null;
    if (!met) throw new SsoError('unauthorised', 'You are not authorised to sign in here.', 403);
  }
}
