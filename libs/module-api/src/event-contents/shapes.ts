/** What a JSON value has to be like, and the type that it has then. */
export interface Shape<T> {
  /** Whether a value is like this. */
  readonly fits: (value: unknown) => boolean;
  /** Only for the compiler: what a value is when it fits. */
  readonly type?: T;
}

/** A field that may be missing. */
interface OptionalShape<T> extends Shape<T> {
  readonly isOptional: true;
}

/** The type of what fits a shape. */
export type Fitting<S> = S extends Shape<infer T> ? T : never;

type Fields = Readonly<Record<string, Shape<unknown>>>;
type OptionalNames<F> = { [Name in keyof F]: F[Name] extends OptionalShape<unknown> ? Name : never }[keyof F];
type Flat<T> = { readonly [Name in keyof T]: T[Name] };
type ObjectOf<F> = Flat<
  { [Name in Exclude<keyof F, OptionalNames<F>>]: Fitting<F[Name]> } & {
    [Name in OptionalNames<F>]?: Fitting<F[Name]>;
  }
>;

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export const text: Shape<string> = { fits: (value) => typeof value === 'string' };
/** A number that any JSON of Matrix may hold. */
export const whole: Shape<number> = { fits: Number.isSafeInteger };
export const number: Shape<number> = { fits: Number.isFinite };
export const flag: Shape<boolean> = { fits: (value) => typeof value === 'boolean' };
export const nothing: Shape<null> = { fits: (value) => value === null };
export const anyObject: Shape<Readonly<Record<string, unknown>>> = { fits: isRecord };

/** One of these texts. */
export const oneOf = <const Text extends string>(...texts: readonly Text[]): Shape<Text> => ({
  fits: (value) => (texts as readonly unknown[]).includes(value),
});

/** What fits one of two shapes. */
export const either = <A, B>(one: Shape<A>, other: Shape<B>): Shape<A | B> => ({
  fits: (value) => one.fits(value) || other.fits(value),
});

export const optional = <T>({ fits }: Shape<T>): OptionalShape<T> => ({ fits, isOptional: true });

export const list = <T>(of: Shape<T>): Shape<readonly T[]> => ({
  fits: (value) => Array.isArray(value) && value.every(of.fits),
});

/** An object with any keys. */
export const record = <T>(of: Shape<T>): Shape<Readonly<Record<string, T>>> => ({
  fits: (value) => isRecord(value) && Object.values(value).every(of.fits),
});

/** An object with these keys; others may be there, too. */
export function object<const F extends Fields>(fields: F): Shape<ObjectOf<F>> {
  const entries = Object.entries(fields);
  return {
    fits: (value) =>
      isRecord(value) &&
      entries.every(([name, shape]) => (Object.hasOwn(value, name) ? shape.fits(value[name]) : 'isOptional' in shape)),
  };
}
