import { MatrixError } from '@rookery/matrix-types';

/** 501 `M_UNRECOGNIZED`: a method whose feature this server does not have. */
export const unsupported = (feature: string): MatrixError =>
  MatrixError.notImplemented(`This server does not have ${feature}`);
