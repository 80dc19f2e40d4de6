import { XMLParser, XMLValidator } from 'fast-xml-parser';

/** Whom a CAS server vouches for. */
export interface CasPrincipal {
  readonly user: string;
  /** Values by name. */
  readonly attributes: Readonly<Record<string, readonly string[]>>;
}

/** Why a CAS server vouches for nobody. */
export interface CasFailure {
  readonly code: string;
  readonly description: string;
}

const maxAttributes = 200;
type Node = Readonly<Record<string, unknown>>;

/** Declarations of entities are not read at all: neither bombs nor files get in. */
const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: '@',
  removeNSPrefix: true,
  parseTagValue: false,
  parseAttributeValue: false,
  trimValues: true,
  processEntities: true,
  maxNestedTags: 50,
});

/**
 * Reads the answer of a ticket validation.
 * @returns `undefined` for what is none
 * @see CAS Protocol 3.0, section 2.5
 */
export function readCasResponse(xml: string): CasPrincipal | CasFailure | undefined {
  // A document type is of no use here, and the home of every trick.
  if (/<!DOCTYPE|<!ENTITY/i.test(xml) || XMLValidator.validate(xml) !== true) return undefined;
  let root: unknown;
  try {
    root = (parser.parse(xml) as Node)['serviceResponse'];
  } catch {
    return undefined;
  }
  if (!isNode(root)) return undefined;
  const { authenticationSuccess: success, authenticationFailure: failure } = root;
  if (failure !== undefined) {
    return {
      code: isNode(failure) ? textOf(failure['@code']) : '',
      description: isNode(failure) ? textOf(failure['#text']) : textOf(failure),
    };
  }
  if (!isNode(success)) return undefined;
  const user = textOf(success['user']);
  return user === '' ? undefined : { user, attributes: attributesOf(success['attributes']) };
}

function attributesOf(node: unknown): Record<string, string[]> {
  const attributes = Object.create(null) as Record<string, string[]>;
  if (!isNode(node)) return attributes;
  for (const [name, value] of Object.entries(node).slice(0, maxAttributes)) {
    if (name.startsWith('@') || name === '#text') continue;
    attributes[name] = (Array.isArray(value) ? value : [value]).map(textOf);
  }
  return attributes;
}

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && !Array.isArray(value);

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value : isNode(value) && typeof value['#text'] === 'string' ? value['#text'] : '';
