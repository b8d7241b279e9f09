// The GPU back end of splat cameras: microsim/render/splat, operation by operation, so that the bits are the same.
//
// Compiled without fused multiply-add, and with division and square root as IEEE 754 demands. Where splats meet in any
// order (lists made with atomics), they are sorted afterwards by a key that no two share. The constants in capitals are
// those of the CPU's code: gpu_source.py defines them.

#define TILE 16
#define CHUNK 256

typedef unsigned long long Key;

// A view: position 0, axes 3, fx 12, fy 13, cx 14, cy 15, width 16, height 17, slopes left 18, right 19, up 20, down 21,
// spreads 22 and 23, near 24; of a fisheye (25 above 0): end 25, its sine 26 and cosine 27, k1 to k4 28; cull up 32, down 33. A footprint (20 floats): root xx, xy, yy, opacity | red, green, blue, depth |
// extent, centre x, y, rest x | rest y, reach x, y, - | one over the depth, its change with x and y, owner.

__device__ __forceinline__ bool sees_chunk(const double* view, const double* sphere)
{
  const double* a = view + 3;
  double left = view[18] - MARGIN_PX / view[12], right = view[19] + MARGIN_PX / view[12];
  double up = view[32] - MARGIN_PX / view[13], down = view[33] + MARGIN_PX / view[13];
  double dx = sphere[0] - view[0], dy = sphere[1] - view[1], dz = sphere[2] - view[2], radius = sphere[3];
  double x = a[0] * dx + a[1] * dy + a[2] * dz, y = a[3] * dx + a[4] * dy + a[5] * dz;
  double z = a[6] * dx + a[7] * dy + a[8] * dz;
  if (view[25] > 0.0) return !(sqrt(x * x + y * y) * view[27] - z * view[26] > radius);
  return !(x - right * z > radius * sqrt(1.0 + right * right) || left * z - x > radius * sqrt(1.0 + left * left)
        || y - down * z > radius * sqrt(1.0 + down * down) || up * z - y > radius * sqrt(1.0 + up * up)
        || z + radius < view[24]);
}

// `exact.atan2`, of y >= 0.
__device__ __forceinline__ double angle_of(double y, double x)
{
  if (x == 0.0) return y == 0.0 ? 0.0 : 1.57079632679489655800e00;
  double q = fabs(y / x), hi, lo, t;
  if (q < 0.4375) { hi = 0.0; lo = 0.0; t = q; }
  else if (q < 0.6875) { hi = 4.63647609000806093515e-01; lo = 2.26987774529616870924e-17; t = (2.0 * q - 1.0) / (2.0 + q); }
  else if (q < 1.1875) { hi = 7.85398163397448278999e-01; lo = 3.06161699786838301793e-17; t = (q - 1.0) / (q + 1.0); }
  else if (q < 2.4375) { hi = 9.82793723247329054082e-01; lo = 1.39033110312309984516e-17; t = (q - 1.5) / (1.0 + 1.5 * q); }
  else { hi = 1.57079632679489655800e00; lo = 6.12323399573676603587e-17; t = -1.0 / q; }
  double z = t * t, w = z * z;
  double odd = z * (3.33333333333329318027e-01 + w * (1.42857142725034663711e-01 + w * (9.09088713343650656196e-02
      + w * (6.66107313738753120669e-02 + w * (4.97687799461593236017e-02 + w * 1.62858201153657823623e-02)))));
  double even = w * (-1.99999999998764832476e-01 + w * (-1.11111104054623557880e-01 + w * (-7.69187620504482999495e-02
      + w * (-5.83357013379057348645e-02 + w * -3.65315727442169155270e-02))));
  double angle = hi - ((t * (odd + even) - lo) - t);
  return x < 0.0 ? 3.141592653589793 - (angle - 1.2246467991473531772e-16) : angle;
}

// `_bent`: false beyond the fisheye's end.
__device__ __forceinline__ bool bent(const double* view, double x, double y, double z, double distance, double* scale,
    double* lean, double* fall)
{
  const double* k = view + 28;
  double aside = sqrt(x * x + y * y), angle = angle_of(aside, z);
  if (angle > view[25]) return false;
  double square = angle * angle;
  double radius = angle * (1.0 + square * (k[0] + square * (k[1] + square * (k[2] + square * k[3]))));
  double growth = 1.0 + square * (3.0 * k[0] + square * (5.0 * k[1] + square * (7.0 * k[2] + square * (9.0 * k[3]))));
  *fall = growth / (distance * distance);
  *scale = 1.0 / distance; *lean = 0.0;
  if (!(aside < ON_AXIS * distance)) { *scale = radius / aside; *lean = (*fall * z - *scale) / (aside * aside); }
  return true;
}

__device__ __forceinline__ bool footprint_of(const double* view, float4 g0, float4 g1, float4 g2, float4* out, short4* tiles)
{
  const double* a = view + 3;
  double dx = (double)g0.x - view[0], dy = (double)g0.y - view[1], dz = (double)g0.z - view[2];
  double z = a[6] * dx + a[7] * dy + a[8] * dz;
  double x = a[0] * dx + a[1] * dy + a[2] * dz, y = a[3] * dx + a[4] * dy + a[5] * dz;
  double distance = z, scale = 0.0, lean = 0.0, fall = 0.0;
  bool bends = view[25] > 0.0;
  if (bends) distance = sqrt(x * x + y * y + z * z);
  if (distance < view[24]) return false;
  if (bends && !bent(view, x, y, z, distance, &scale, &lean, &fall)) return false;
  double per_distance = 1.0 / distance;
  double slope_x = bends ? x * scale : x * per_distance, slope_y = bends ? y * scale : y * per_distance;
  double u = view[12] * slope_x + view[14], v = view[13] * slope_y + view[15];
  double extent = sqrt(2.0 * (double)g2.w);
  double reach = extent * (double)fmaxf(fmaxf(g0.w, g1.x), g1.y) * per_distance;
  double wide = reach * view[22] + MARGIN_PX, high = reach * view[23] + MARGIN_PX;
  if (u + wide < 0.0 || u - wide > view[16] || v + high < 0.0 || v - high > view[17]) return false;
  double jx0, jx1, jx2, jy0, jy1, jy2;
  double along_x = 0.0, along_y = 0.0, along_z = 1.0;  // where depth grows, in the optical frame
  if (bends) {
    double fx = view[12], fy = view[13], both = x * y * lean;
    double xx = fx * (scale + x * x * lean), yy = fy * (scale + y * y * lean), xy = fx * both, yx = fy * both;
    double xz = -fx * x * fall, yz = -fy * y * fall;
    along_x = x * per_distance; along_y = y * per_distance; along_z = z * per_distance;
    jx0 = xx * a[0] + xy * a[3] + xz * a[6]; jx1 = xx * a[1] + xy * a[4] + xz * a[7]; jx2 = xx * a[2] + xy * a[5] + xz * a[8];
    jy0 = yx * a[0] + yy * a[3] + yz * a[6]; jy1 = yx * a[1] + yy * a[4] + yz * a[7]; jy2 = yx * a[2] + yy * a[5] + yz * a[8];
  } else {
    slope_x = fmin(fmax(slope_x, view[18]), view[19]);
    slope_y = fmin(fmax(slope_y, view[20]), view[21]);
    double scale_x = view[12] * per_distance, scale_y = view[13] * per_distance;
    jx0 = scale_x * (a[0] - slope_x * a[6]); jx1 = scale_x * (a[1] - slope_x * a[7]); jx2 = scale_x * (a[2] - slope_x * a[8]);
    jy0 = scale_y * (a[3] - slope_y * a[6]); jy1 = scale_y * (a[4] - slope_y * a[7]); jy2 = scale_y * (a[5] - slope_y * a[8]);
  }
  double jz0 = along_x * a[0] + along_y * a[3] + along_z * a[6], jz1 = along_x * a[1] + along_y * a[4] + along_z * a[7];
  double jz2 = along_x * a[2] + along_y * a[5] + along_z * a[8];
  double qx = g1.z, qy = g1.w, qz = g2.x, qw = g2.y, s0 = g0.w, s1 = g1.x, s2 = g1.y;
  double xx = qx * qx, yy = qy * qy, zz = qz * qz;
  double xy = qx * qy, xz = qx * qz, yz = qy * qz, wx = qw * qx, wy = qw * qy, wz = qw * qz;
  double m0 = (1.0 - 2.0 * (yy + zz)) * s0, m1 = (2.0 * (xy + wz)) * s0, m2 = (2.0 * (xz - wy)) * s0;
  double x0 = jx0 * m0 + jx1 * m1 + jx2 * m2, y0 = jy0 * m0 + jy1 * m1 + jy2 * m2, z0 = jz0 * m0 + jz1 * m1 + jz2 * m2;
  m0 = (2.0 * (xy - wz)) * s1; m1 = (1.0 - 2.0 * (xx + zz)) * s1; m2 = (2.0 * (yz + wx)) * s1;
  double x1 = jx0 * m0 + jx1 * m1 + jx2 * m2, y1 = jy0 * m0 + jy1 * m1 + jy2 * m2, z1 = jz0 * m0 + jz1 * m1 + jz2 * m2;
  m0 = (2.0 * (xz + wy)) * s2; m1 = (2.0 * (yz - wx)) * s2; m2 = (1.0 - 2.0 * (xx + yy)) * s2;
  double x2 = jx0 * m0 + jx1 * m1 + jx2 * m2, y2 = jy0 * m0 + jy1 * m1 + jy2 * m2, z2 = jz0 * m0 + jz1 * m1 + jz2 * m2;
  double c_xx = x0 * x0 + x1 * x1 + x2 * x2 + DILATION;
  double c_xy = x0 * y0 + x1 * y1 + x2 * y2;
  double c_yy = y0 * y0 + y1 * y1 + y2 * y2 + DILATION;
  double c_xz = x0 * z0 + x1 * z1 + x2 * z2, c_yz = y0 * z0 + y1 * z1 + y2 * z2;
  double determinant = c_xx * c_yy - c_xy * c_xy;
  if (!(determinant > 0.0)) return false;
  double reach_x = extent * sqrt(c_xx) * REACH_FACTOR + REACH_MARGIN_PX;
  double reach_y = extent * sqrt(c_yy) * REACH_FACTOR + REACH_MARGIN_PX;
  if (u + reach_x < 0.0 || u - reach_x > view[16] - 1.0 || v + reach_y < 0.0 || v - reach_y > view[17] - 1.0) return false;
  tiles->x = (short)(int)(fmax(u - reach_x, 0.0) / TILE);
  tiles->y = (short)((int)(fmin(u + reach_x, view[16] - 1.0) / TILE) + 1);
  tiles->z = (short)(int)(fmax(v - reach_y, 0.0) / TILE);
  tiles->w = (short)((int)(fmin(v + reach_y, view[17] - 1.0) / TILE) + 1);
  double root = sqrt(c_yy / (2.0 * determinant)), whole_u = floor(u + 0.5), whole_v = floor(v + 0.5);
  out[0] = make_float4((float)root, (float)(-c_xy * root / c_yy), (float)sqrt(0.5 / c_yy), g2.z);
  out[1] = make_float4(0.f, 0.f, 0.f, (float)distance);
  out[2] = make_float4(g2.w, (float)whole_u, (float)whole_v, (float)(u - whole_u));
  out[3] = make_float4((float)(v - whole_v), (float)reach_x, (float)reach_y, 0.f);
  double per_depth = per_distance * per_distance / determinant;
  out[4] = make_float4(1.f / (float)distance, (float)((c_yy * c_xz - c_xy * c_yz) * per_depth),
      (float)((c_xx * c_yz - c_xy * c_xz) * per_depth), 0.f);
  return true;
}

// Harmonics and geometry are stored as float4 of all splats, one after the other: neighbours read side by side.
__device__ __forceinline__ void colour_of(const double* view, float4 g0, const float4* harmonics, int n, int i, int degree,
    float4* out)
{
  float h[48];
#pragma unroll
  for (int quad = 0; quad < 12; quad++)
    if (4 * quad < 3 * (degree + 1) * (degree + 1)) {
      float4 four = harmonics[(size_t)quad * n + i];
      h[4 * quad] = four.x; h[4 * quad + 1] = four.y; h[4 * quad + 2] = four.z; h[4 * quad + 3] = four.w;
    }
  double dx = (double)g0.x - view[0], dy = (double)g0.y - view[1], dz = (double)g0.z - view[2];
  double per_length = 1.0 / sqrt(dx * dx + dy * dy + dz * dz);
  float x = (float)(dx * per_length), y = (float)(dy * per_length), z = (float)(dz * per_length);
  float red = 0.5f, green = 0.5f, blue = 0.5f;
#define ADD(k, value) { float b = (value); red += b * h[3 * k]; green += b * h[3 * k + 1]; blue += b * h[3 * k + 2]; }
  ADD(0, H0)
  if (degree > 0) { ADD(1, -H1 * y) ADD(2, H1 * z) ADD(3, -H1 * x) }
  if (degree > 1) {
    float xx = x * x, yy = y * y, zz = z * z;
    ADD(4, H2 * (x * y)) ADD(5, -H2 * (y * z)) ADD(6, H3 * (2.f * zz - xx - yy)) ADD(7, -H2 * (x * z)) ADD(8, H4 * (xx - yy))
    if (degree > 2) {
      ADD(9, -H5 * y * (3.f * xx - yy)) ADD(10, H6 * (x * y) * z) ADD(11, -H7 * y * (4.f * zz - xx - yy))
      ADD(12, H8 * z * (2.f * zz - 3.f * xx - 3.f * yy)) ADD(13, -H7 * x * (4.f * zz - xx - yy))
      ADD(14, H9 * z * (xx - yy)) ADD(15, -H5 * x * (xx - 3.f * yy))
    }
  }
  out[1].x = fmaxf(red, 0.f); out[1].y = fmaxf(green, 0.f); out[1].z = fmaxf(blue, 0.f);
}

// Columns of tiles that an ellipse reaches in a row of tiles: `_find_tiles_of_large`.
struct Ellipse { double xy, yy, per_xx, extent, u, v, bulge; };

__device__ __forceinline__ Ellipse ellipse_of(const float4* f)
{
  Ellipse e; double xx = f[0].x; e.xy = f[0].y; e.yy = f[0].z; e.per_xx = 1.0 / xx;
  e.extent = (double)f[2].x * EXTENT_FACTOR + EXTENT_MARGIN;
  e.u = (double)f[2].y + (double)f[2].w; e.v = (double)f[2].z + (double)f[3].x;
  e.bulge = -e.xy * sqrt(e.extent / (e.xy * e.xy + e.yy * e.yy)) / e.yy;
  return e;
}

__device__ __forceinline__ int2 columns_in(const Ellipse& e, short4 tiles, int row)
{
  if (tiles.y - tiles.x <= 1 || tiles.w - tiles.z <= 1) return make_int2(tiles.x, tiles.y);
  double above = (double)(row * TILE) - e.v, below = above + (TILE - 1);
  double y = fmin(fmax(e.bulge, above), below);
  double x_high = (sqrt(fmax(e.extent - (e.yy * y) * (e.yy * y), 0.0)) - e.xy * y) * e.per_xx;
  y = fmin(fmax(-e.bulge, above), below);
  double x_low = (-sqrt(fmax(e.extent - (e.yy * y) * (e.yy * y), 0.0)) - e.xy * y) * e.per_xx;
  int first = (int)fmax((e.u + x_low - TILE_MARGIN_PX) * (1.0 / TILE), (double)tiles.x);
  int end = (int)fmin(fmax((e.u + x_high + TILE_MARGIN_PX) * (1.0 / TILE) + 1.0, 0.0), (double)tiles.y);
  return make_int2(first, end);
}

// A pair of a splat and one of the tiles in its rectangle: the splat's key, the tile, its rank among that tile's pairs.
struct __align__(16) Pair { Key key; unsigned tile, rank; };
#define NO_TILE 0xffffffffu

// What the threads of a warp must know of each other's splats.
struct Splat { Ellipse ellipse; Key key; short4 tiles; unsigned end; };

// Pairs of a warp's splats, as many as their rectangles have tiles; those that the ellipse does not reach have no tile.
// The threads share them evenly: a splat may have one tile or thousands.
__device__ __forceinline__ void add_pairs(const float4* f, short4 tiles, Key key, int columns, unsigned capacity, Splat* splats,
    Pair* pairs, unsigned* counters, unsigned* counts)
{
  int lane = threadIdx.x & 31, wide = tiles.y - tiles.x, high = tiles.w - tiles.z;
  unsigned end = wide * high;
  for (int step = 1; step < 32; step <<= 1) {
    unsigned before = __shfl_up_sync(~0u, end, step);
    if (lane >= step) end += before;
  }
  Splat own = {};
  if (wide > 1 && high > 1) own.ellipse = ellipse_of(f);
  own.key = key; own.tiles = tiles; own.end = end;
  splats[lane] = own;
  __syncwarp();
  unsigned total = __shfl_sync(~0u, end, 31), start = 0;
  if (lane == 0) start = atomicAdd(counters, total);
  start = __shfl_sync(~0u, start, 0);
  for (unsigned k = lane; k < total; k += 32) {
    int at = 0;
    for (int step = 16; step > 0; step >>= 1)
      if (splats[at + step - 1].end <= k) at += step;
    const Splat& splat = splats[at];
    short4 t = splat.tiles;
    int across = t.y - t.x, within = k - (splat.end - across * (t.w - t.z)), row = t.z + within / across;
    int column = t.x + within % across, tile = row * columns + column;
    int2 reached = columns_in(splat.ellipse, t, row);
    Pair pair;
    pair.key = splat.key; pair.tile = NO_TILE; pair.rank = 0;
    if (column >= reached.x && column < reached.y) { pair.tile = tile; pair.rank = atomicAdd(counts + tile, 1u); }
    if (start + k < capacity) pairs[start + k] = pair;
  }
}

extern "C" {

// Splats that share a view: those of the world, and those of each actor. `before` splats and `chunks_before` chunks belong to
// scenes in front of this one in their table.
struct Scene { const double* spheres; const float4* geometry; const float4* harmonics; long long degree, n, before, chunks_before; };

// One block a chunk, of all scenes at once. Footprints stand at their splat's number among all: those of equal depth are blended
// in this order. `views` has 34 numbers for each scene. Counters: pairs written here, pairs of all lists.
__global__ void __launch_bounds__(CHUNK) project(const double* __restrict__ views, const Scene* __restrict__ scenes, int count,
    int columns, unsigned capacity, float4* __restrict__ footprints, Pair* __restrict__ pairs, unsigned* __restrict__ counters,
    unsigned* __restrict__ counts)
{
  __shared__ double view[34];
  __shared__ Splat splats[CHUNK];
  int number = 0;
  while (number + 1 < count && blockIdx.x >= scenes[number + 1].chunks_before) number++;
  const Scene scene = scenes[number];
  if (threadIdx.x < 34) view[threadIdx.x] = views[34 * number + threadIdx.x];
  __syncthreads();
  size_t chunk = blockIdx.x - scene.chunks_before, n = scene.n;
  if (!sees_chunk(view, scene.spheres + 4 * chunk)) return;
  size_t i = chunk * CHUNK + threadIdx.x;
  float4 f[5] = {}; short4 tiles = make_short4(0, 0, 0, 0);
  bool is_seen = false;
  if (i < n) {
    float4 g0 = scene.geometry[i], g1 = scene.geometry[n + i], g2 = scene.geometry[2 * n + i];
    is_seen = footprint_of(view, g0, g1, g2, f, &tiles);
    if (is_seen) {
      colour_of(view, g0, scene.harmonics, n, i, scene.degree, f);
      f[4].w = (float)number;
      for (int k = 0; k < 5; k++) footprints[5 * (scene.before + i) + k] = f[k];
    } else tiles = make_short4(0, 0, 0, 0);
  }
  if (!__any_sync(~0u, is_seen)) return;
  add_pairs(f, tiles, ((Key)__float_as_uint(f[1].w) << 32) | (unsigned)(scene.before + i), columns, capacity,
      splats + (threadIdx.x & ~31), pairs, counters, counts);
}

// One block: where each tile's list begins. With more pairs than room for them all lists are empty: the host looks.
__global__ void __launch_bounds__(1024) scan(int tiles, unsigned capacity, const unsigned* __restrict__ counts,
    unsigned* __restrict__ offsets, unsigned* __restrict__ counters)
{
  __shared__ unsigned sums[1024];
  int per = (tiles + 1023) / 1024, begin = min(tiles, (int)threadIdx.x * per), end = min(tiles, begin + per);
  unsigned own = 0;
  bool has_room = counters[0] <= capacity;
  for (int k = begin; k < end && has_room; k++) own += counts[k];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (int step = 1; step < 1024; step <<= 1) {
    unsigned before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  unsigned at = sums[threadIdx.x] - own;
  for (int k = begin; k < end; k++) { offsets[k] = at; if (has_room) at += counts[k]; }
  if (threadIdx.x == 1023) { offsets[tiles] = sums[1023]; counters[1] = sums[1023]; }
}

// Every pair into the list of its tile.
__global__ void __launch_bounds__(256) emit(const unsigned* __restrict__ counters, const Pair* __restrict__ pairs,
    const unsigned* __restrict__ offsets, unsigned capacity, Key* __restrict__ keys)
{
  unsigned count = counters[0] <= capacity ? counters[0] : 0;
  for (unsigned k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x) {
    Pair pair = pairs[k];
    if (pair.tile != NO_TILE) keys[offsets[pair.tile] + pair.rank] = pair.key;
  }
}

// The list of a tile, nearest first; bitonic, with ascending comparisons only, so that any length will do.
__device__ __forceinline__ void order(Key* keys, int i, int j, int n)
{
  if (j < n) { Key a = keys[i], b = keys[j]; if (a > b) { keys[i] = b; keys[j] = a; } }
}

// Up to 32 apart, keys are compared by threads of the warp that compared their neighbours: no need to wait for others.
__device__ __forceinline__ void wait_for(int reach) { if (reach > 32) __syncthreads(); else __syncwarp(); }

__device__ __forceinline__ void sort_list(Key* keys, int n)
{
  for (int size = 2; size / 2 < n; size <<= 1) {
    int half = size / 2;
    wait_for(half);
    for (int k = threadIdx.x; k * 2 < n + size; k += blockDim.x) {
      int first = (k & ~(half - 1)) << 1, rest = k & (half - 1);
      order(keys, first + rest, first + size - 1 - rest, n);
    }
    for (int step = half / 2; step > 0; step >>= 1) {
      wait_for(2 * step);
      for (int k = threadIdx.x; k * 2 < n + 2 * step; k += blockDim.x) {
        int at = ((k & ~(step - 1)) << 1) + (k & (step - 1));
        order(keys, at, at + step, n);
      }
    }
  }
  __syncthreads();
}

// Tiles with more than `least` and at most `most` splats; one block a tile, `most` keys of shared memory.
__global__ void sort_tiles(const unsigned* __restrict__ offsets, int least, int most, const Key* __restrict__ keys,
    unsigned* __restrict__ ids)
{
  extern __shared__ Key own[];
  unsigned begin = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
  int n = end - begin;
  if (n <= least || n > most) return;
  for (int k = threadIdx.x; k < n; k += blockDim.x) own[k] = keys[begin + k];
  __syncthreads();
  sort_list(own, n);
  for (int k = threadIdx.x; k < n; k += blockDim.x) ids[begin + k] = (unsigned)own[k];
}

// The same for lists too long for shared memory: slow, and rare.
__global__ void sort_long_tiles(const unsigned* __restrict__ offsets, int least, Key* __restrict__ keys,
    unsigned* __restrict__ ids)
{
  unsigned begin = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
  int n = end - begin;
  if (n <= least) return;
  sort_list(keys + begin, n);
  for (int k = threadIdx.x; k < n; k += blockDim.x) ids[begin + k] = (unsigned)keys[begin + k];
}

// One block a tile, one thread a pixel, a warp for 8 × 4 of them. `limits` and `things` are null where there is nothing
// but splats, `rays` where the camera is a pinhole.
__global__ void __launch_bounds__(256) blend(const double* __restrict__ view, const float4* __restrict__ footprints,
    const unsigned* __restrict__ ids, const unsigned* __restrict__ offsets, int columns, int width, int height,
    float h_red, float h_green, float h_blue, float z_red, float z_green, float z_blue, float g_red, float g_green, float g_blue, const float* __restrict__ limits,
    const unsigned char* __restrict__ things, const double* __restrict__ rays, float* __restrict__ colours, float* __restrict__ alphas, float* __restrict__ depths,
    unsigned short* __restrict__ owners)
{
  __shared__ float4 first[256], second[256], third[256];
  __shared__ float slope_y[256];
  __shared__ unsigned char reached[256];  // a bit for each warp
  int thread = threadIdx.x, lane = thread & 31, warp = thread >> 5;
  float half = (float)((warp & 1) * (TILE / 2)), column = (float)(lane & 7), row = (float)((warp >> 1) * 4 + (lane >> 3));
  int left = (blockIdx.x % columns) * TILE, top = (blockIdx.x / columns) * TILE;
  int u = left + (int)half + (int)column, v = top + (int)row;
  bool is_inside = u < width && v < height, is_done = !is_inside;
  size_t pixel = (size_t)v * width + u;
  const float infinite = __int_as_float(0x7f800000);
  float limit = is_inside && limits ? limits[pixel] : infinite;
  float least = limit < infinite ? (limit > 0.f ? 1.f / limit : infinite) : -infinite;  // one over the depth of what is before it
  float rest = 1.f, red = 0.f, green = 0.f, blue = 0.f;
  unsigned surface = NO_TILE;  // where the splat is in the list whose surface is seen
  unsigned begin = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
  for (unsigned start = begin; start < end; start += 256) {
    if (__syncthreads_count(is_done) == 256) break;
    unsigned mask = 0;
    if (start + thread < end) {
      const float4* f = footprints + 5 * (size_t)ids[start + thread];
      float4 a = f[0], b = f[1], c = f[2], d = f[3], e = f[4];
      float x = (c.y - (float)left) + c.w, y = (c.z - (float)top) + d.x;
      first[thread] = make_float4(x, y, a.x, a.y);
      second[thread] = make_float4(a.z, a.w, c.x, e.x);
      third[thread] = make_float4(b.x, b.y, b.z, e.y);
      slope_y[thread] = e.z;
      unsigned sides = (x - d.y > (float)(TILE / 2 - 1) ? 0u : 1u) | (x + d.y < (float)(TILE / 2) ? 0u : 2u);
      for (int part = 0; part < 4; part++)
        if (y - d.z <= (float)(4 * part + 3) && y + d.z >= (float)(4 * part)) mask |= sides << (2 * part);
    }
    reached[thread] = (unsigned char)mask;
    __syncthreads();
    for (int base = 0; base < 256; base += 32) {
      unsigned next = __ballot_sync(~0u, (reached[base + lane] >> warp) & 1);
      if (__all_sync(~0u, is_done)) break;
      while (next) {
        int k = base + __ffs(next) - 1;
        next &= next - 1;
        if (is_done) continue;
        float4 a = first[k], b = second[k];
        float dy = a.y - row, shear = a.w * dy, rise = b.x * dy;
        rise = rise * rise;
        float dx = (a.x - half) - column, p = a.z * dx + shear, s = p * p + rise;
        if (!(s <= b.z)) continue;
        float e = ((((E5 * s + E4) * s + E3) * s + E2) * s + E1) * s + E0;
        e = e * e; e = e * e; e = e * e;
        float alpha = b.y * e;
        alpha = alpha < ALPHA_MAX ? alpha : ALPHA_MAX;
        if (!(b.w > least)) { is_done = true; continue; }
        float4 c = third[k];
        if (!((b.w + slope_y[k] * dy) + c.w * dx > least)) continue;
        float weight = alpha * rest, after = rest - weight;
        if (!(after > TRANSMITTANCE_MIN)) { is_done = true; continue; }
        if (rest > SURFACE_TRANSMITTANCE && after <= SURFACE_TRANSMITTANCE) surface = start + k;
        red += weight * c.x; green += weight * c.y; blue += weight * c.z; rest = after;
      }
    }
  }
  if (!is_inside) return;
  float behind_red, behind_green, behind_blue;
  if (limits && limit < infinite) {
    behind_red = (float)things[3 * pixel] / 255.f; behind_green = (float)things[3 * pixel + 1] / 255.f;
    behind_blue = (float)things[3 * pixel + 2] / 255.f;
  } else {
    double x = ((double)u - view[14]) / view[12], y = ((double)v - view[15]) / view[13];
    if (rays) { x = rays[2 * pixel]; y = rays[2 * pixel + 1]; }
    double up = view[5] * x + view[8] * y + view[11];
    float share = (float)(fmax(up, 0.0) / sqrt(x * x + y * y + 1.0));
    if (up < 0.0) { h_red = g_red; h_green = g_green; h_blue = g_blue; }
    behind_red = h_red + (z_red - h_red) * share; behind_green = h_green + (z_green - h_green) * share;
    behind_blue = h_blue + (z_blue - h_blue) * share;
    if (x != x) behind_red = behind_green = behind_blue = 0.f;
  }
  colours[3 * pixel] = red + rest * behind_red; colours[3 * pixel + 1] = green + rest * behind_green;
  colours[3 * pixel + 2] = blue + rest * behind_blue;
  alphas[pixel] = 1.f - rest;
  if (surface == NO_TILE) {
    depths[pixel] = limit; owners[pixel] = limit < infinite ? THING : NOTHING;
    return;
  }
  // `_depth_at`
  const float4* f = footprints + 5 * (size_t)ids[surface];
  float4 c = f[2], e = f[4];
  float dx = (c.y - (float)u) + c.w, dy = (c.z - (float)v) + f[3].x;
  float inverse = (e.x + e.z * dy) + e.y * dx;
  depths[pixel] = 1.f / fminf(fmaxf(inverse, e.x / SURFACE_SPREAD), e.x * SURFACE_SPREAD);
  owners[pixel] = (unsigned short)(SPLATS + (int)e.w);
}

__device__ __forceinline__ float mix(float a, float b, float share) { return a + (b - a) * share; }

__device__ __forceinline__ float sum_of_bytes(unsigned word)
{
  return (float)((int)(word & 255) + (int)((word >> 8) & 255) + (int)((word >> 16) & 255) + (int)(word >> 24) - 510);
}

__device__ __forceinline__ unsigned char byte_of(float value)
{
  return (unsigned char)(fminf(fmaxf(value, 0.f), 255.f) + 0.5f);
}

__device__ __forceinline__ double along_axis(const double* body, double x, double y, double z, int k)
{
  return body[3 + k] * x + body[6 + k] * y + body[9 + k] * z;
}

// `robot_models._covered`
__device__ double covered(const double* body, double x, double y, double z)
{
  double dx = x - body[0], dy = y - body[1], dz = z - body[2];
  double reach = body[12] + body[13] + body[14], across = dz / SUN_Z;
  double east = dx - across * SUN_X, north = dy - across * SUN_Y;
  if (east * east + north * north > reach * reach || dz > reach) return 0.0;
  double enter = 0.0, leave = (double)__int_as_float(0x7f800000);
  bool is_near = true;
  for (int k = 0; k < 3; k++) {
    double place = along_axis(body, dx, dy, dz, k), along = along_axis(body, SUN_X, SUN_Y, SUN_Z, k);
    double half = body[12 + k] + (k < 2 ? SOFT_M : 0.0), inverse = 1.0 / (along != 0.0 ? along : TINY);
    double low = (-half - place) * inverse, high = (half - place) * inverse;
    enter = fmax(enter, low < high ? low : high);
    leave = fmin(leave, low < high ? high : low);
    is_near = is_near && fabs(place) < body[12 + k] + OWN_M;
  }
  if (is_near && along_axis(body, dx, dy, dz, 2) > fmin(LOW_M, 0.6 * body[14]) - body[14]) return 0.0;
  return fmin(fmax((leave - enter) / fmin(2.0 * body[14], SOFT_LENGTH_M), 0.0), 1.0);
}

// `geometry.ground_height`
__device__ double ground_height(const double* elevation, int columns, int rows, double cell, double x, double y)
{
  double u = fmin(fmax(x / cell - 0.5, 0.0), columns - 1.0), v = fmin(fmax(y / cell - 0.5, 0.0), rows - 1.0);
  int i = min((int)u, max(columns - 2, 0)), j = min((int)v, max(rows - 2, 0));
  int i1 = min(i + 1, columns - 1), j1 = min(j + 1, rows - 1);
  u -= i; v -= j;
  const double *low = elevation + (size_t)j * columns, *high = elevation + (size_t)j1 * columns;
  double south = low[i] + (low[i1] - low[i]) * u, north = high[i] + (high[i1] - high[i]) * u;
  return south + (north - south) * v;
}

// Lens, gain, noise, bytes. `lookup` is null where there is no distortion, `stretch` unless it is a fisheye; the canvas is what
// was blended.
__global__ void __launch_bounds__(256) develop(const float* __restrict__ colours, const float* __restrict__ seen_depths,
    const unsigned short* __restrict__ seen_owners, int canvas_width, int canvas_height,
    const float* __restrict__ lookup, int width, int height, float gain, float noise_level, unsigned key_low, unsigned key_high,
    unsigned tick_low, unsigned tick_high, unsigned first, const double* __restrict__ stretch, unsigned char* __restrict__ image, float* __restrict__ depths,
    unsigned short* __restrict__ owners)
{
  int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= width * height) return;
  unsigned noise[4] = {0, 0, 0, 0};
  if (noise_level > 0.f) {
    unsigned c0 = first + pixel, c1 = 0, c2 = tick_low, c3 = tick_high, k0 = key_low, k1 = key_high;
    for (int round = 0; round < 10; round++) {
      unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
      unsigned n0 = (unsigned)(p1 >> 32) ^ c1 ^ k0, n2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;
      c1 = (unsigned)p1; c3 = (unsigned)p0; c0 = n0; c2 = n2;
      k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    noise[0] = c0; noise[1] = c1; noise[2] = c2; noise[3] = c3;
  }
  float x = 0.f, y = 0.f;
  if (lookup) { x = lookup[2 * (size_t)pixel]; y = lookup[2 * (size_t)pixel + 1]; }
  bool is_inside = x >= 0.f && y >= 0.f && x < canvas_width - 1 && y < canvas_height - 1;
  int column = is_inside ? (int)x : 0, row = is_inside ? (int)y : 0;
  float a = x - (float)column, b = y - (float)row;
  const float* at = colours + 3 * ((size_t)row * canvas_width + column);
  for (int channel = 0; channel < 3; channel++) {
    float value = 0.f;
    if (!lookup) value = colours[3 * (size_t)pixel + channel];
    else if (is_inside) {
      const float* below = at + 3 * (size_t)canvas_width;
      value = mix(mix(at[channel], at[channel + 3], a), mix(below[channel], below[channel + 3], a), b);
    }
    value = gain * value;
    if (noise_level > 0.f) value += noise_level * sum_of_bytes(noise[channel]);
    image[3 * (size_t)pixel + channel] = byte_of(value);
  }
  if (!lookup) {
    float depth = seen_depths[pixel];
    if (stretch) depth = stretch[pixel] != stretch[pixel] ? __int_as_float(0x7f800000) : (float)((double)depth / stretch[pixel]);
    depths[pixel] = depth;
    owners[pixel] = seen_owners[pixel];
    return;
  }
  x += 0.5f; y += 0.5f;
  is_inside = x >= 0.f && y >= 0.f && x < canvas_width && y < canvas_height;
  depths[pixel] = is_inside ? seen_depths[(size_t)(int)y * canvas_width + (int)x] : __int_as_float(0x7f800000);
  owners[pixel] = is_inside ? seen_owners[(size_t)(int)y * canvas_width + (int)x] : NOTHING;
}

// `robot_models.shade`: a thread for each pixel of the finished image. `rays` are those of all pixels, first a, then b.
__global__ void __launch_bounds__(256) shade(const double* __restrict__ pose, const double* __restrict__ rays,
    const double* __restrict__ bodies, int count, int pixels, const float* __restrict__ depths, const unsigned short* __restrict__ owners,
    const double* __restrict__ elevation, int columns, int rows, double cell, double west, double south, unsigned char* __restrict__ image)
{
  int pixel = blockIdx.x * blockDim.x + threadIdx.x;
  if (pixel >= pixels) return;
  double depth = depths[pixel], a = rays[pixel], b = rays[(size_t)pixels + pixel];
  if (!(depth < (double)__int_as_float(0x7f800000))) return;
  double east = pose[3] * a + pose[4] * b + pose[5], north = pose[6] * a + pose[7] * b + pose[8];
  double up = pose[9] * a + pose[10] * b + pose[11];
  double x = pose[0] + depth * east, y = pose[1] + depth * north, z = pose[2] + depth * up;
  if (owners[pixel] == SPLATS) {  // `_on_ground`
    double height = ground_height(elevation, columns, rows, cell, x - west, y - south), far = 0.0;
    if (z - height <= ON_GROUND_M && up < FALLING) {
      double to_x = x, to_y = y, to_z = z;
      for (int step = 0; step < GROUND_STEPS; step++) {
        far = (height - pose[2]) / up;
        to_x = pose[0] + far * east; to_y = pose[1] + far * north; to_z = height;
        height = ground_height(elevation, columns, rows, cell, to_x - west, to_y - south);
      }
      if (fabs(to_z - height) <= ON_GROUND_M) { x = to_x; y = to_y; z = to_z; }
    }
  }
  double light = 1.0;
  for (int n = 0; n < count; n++) light = fmin(light, 1.0 - SHADE * covered(bodies + 15 * n, x, y, z));
  if (light < 1.0)
    for (int channel = 0; channel < 3; channel++)
      image[3 * (size_t)pixel + channel] = (unsigned char)(light * (double)image[3 * (size_t)pixel + channel]);
}

}
