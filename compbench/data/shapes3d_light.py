"""Brightness of Shapes3D's surfaces, printed by `experiments/fit_shapes3d_light.py` from 25 real images.

Quadratics in the order of `shapes3d_renderer.monomials`: of (column, row, camera angle) for floor and walls (back,
right, left), of the normal in the camera's frame for the object.  1 is the pure hue; above 1 it is clipped.
"""

FLOOR = (0.348, -0.285, 2.05, 0.195, -0.035, -1.416, 0.005, 0.143, 0.035, -0.294)
WALL = (
    (1.038, -0.066, 0.051, 0.032, -0.015, 0.034, -0.1, -0.001, 0.044, -0.013),
    (0.49, -0.272, 0.052, -0.206, 0.218, 0.089, 0.055, 0.013, -0.025, -0.023),
    (0.178, -0.07, 0.154, 0.597, 0.157, 0.004, -0.053, 0.092, 0.12, -0.059),
)
OBJECT = (0.663, -0.24, -0.287, 0.474, -0.071, -0.006, 0.078, -0.227, -0.177, 0.41)
SHADOW = 0.341
HIGHLIGHT = (0.2, 30.0, -0.35, -0.75, 0.55)
"""Strength, exponent and direction (right, away, up in the camera's frame) of the grey highlight."""
